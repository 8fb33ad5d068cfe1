/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled BPF programs as bytes. */
    .section .rodata
    .global embedded_redirects_start, embedded_redirects_end
    .balign 8
embedded_redirects_start:
    .incbin "redirects.bpf.o"
embedded_redirects_end:
    .byte 0

    .section .note.GNU-stack, "", %progbits
