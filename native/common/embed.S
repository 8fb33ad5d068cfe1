/* SPDX-License-Identifier: Apache-2.0 */
/* A compiled BPF object as bytes: -DNAME=send -DFILE="send.bpf.o" makes embedded_send_start .. embedded_send_end. */
.macro embed name, file
    .global embedded_\name\()_start, embedded_\name\()_end
    .balign 8
embedded_\name\()_start:
    .incbin "\file"
embedded_\name\()_end:
    .byte 0
.endm

    .section .rodata
    embed NAME, FILE

    .section .note.GNU-stack, "", %progbits
