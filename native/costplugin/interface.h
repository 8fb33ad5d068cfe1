// SPDX-License-Identifier: Apache-2.0
// What is used of QEMU's interface for plugins. Its header is in no package of Debian.
// Source: "QEMU TCG Plugins" in the manual of QEMU 7.2, 10.0 and 11.1.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;
// The plugin and the block; from interface 7 on (QEMU 11) the block and the data.
typedef void (*translated_callback)(uintptr_t first, uintptr_t second);
typedef void (*executed_callback)(unsigned cpu, void *data);
typedef void (*accessed_callback)(unsigned cpu, uint32_t access, uint64_t address, void *data);

enum { NO_REGISTERS = 0, READS_AND_WRITES = 3 };

// Interfaces before 7 take no data, and call with the plugin.
void qemu_plugin_reset(uint64_t plugin, void (*done)(uintptr_t), void *data);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t plugin, translated_callback call, void *data);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block, executed_callback call, int flags,
                                          void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *instruction, executed_callback call,
                                            int flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *instruction, accessed_callback call, int flags,
                                      int accesses, void *data);
unsigned qemu_plugin_mem_size_shift(uint32_t access);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *instruction);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *instruction);

// Only interfaces before 2 (QEMU before 9.0) have it.
int qemu_plugin_n_vcpus(void) __attribute__((weak));

// Interfaces from 6 on have it. No QEMU of Debian has 6.
int qemu_plugin_set_pc(uint64_t address) __attribute__((weak));

// Before interface 3 (QEMU 9.1) it has one argument and returns a pointer to the bytes.
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *instruction, void *to, size_t size);
