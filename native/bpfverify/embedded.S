/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled BPF object as bytes. */
    .section .rodata
    .global embedded_watch_start, embedded_watch_end
    .balign 8
embedded_watch_start:
    .incbin "watch.bpf.o"
embedded_watch_end:
    .byte 0

    .section .note.GNU-stack, "", %progbits
