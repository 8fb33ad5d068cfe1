/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled BPF programs as bytes: embedded_<name>_start .. embedded_<name>_end. */
.macro embed name, file
    .global embedded_\name\()_start, embedded_\name\()_end
    .balign 8
embedded_\name\()_start:
    .incbin "\file"
embedded_\name\()_end:
    .byte 0
.endm

    .section .rodata
    embed send, "send.bpf.o"
    embed receive, "receive.bpf.o"
    embed refused, "refused.bpf.o"

    .section .note.GNU-stack, "", %progbits
