/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled BPF program as bytes. */
    .section .rodata
    .global redirect_object, redirect_object_end
    .balign 8
redirect_object:
    .incbin "redirect.bpf.o"
redirect_object_end:
    .byte 0

    .section .note.GNU-stack, "", %progbits
