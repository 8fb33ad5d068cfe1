/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled BPF object as bytes. */
    .section .rodata
    .global embedded_calls_start, embedded_calls_end
    .balign 8
embedded_calls_start:
    .incbin "calls.bpf.o"
embedded_calls_end:
    .byte 0

    .section .note.GNU-stack, "", %progbits
