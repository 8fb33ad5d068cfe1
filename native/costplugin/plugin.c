// SPDX-License-Identifier: Apache-2.0
// A plugin of QEMU that counts a guest's instructions between two marks, by call path and translated block.
//
// A mark is a no-op that no compiler writes; costdrive has them in the guest. MARK_SWITCH makes QEMU
// translate all code anew, at first with calls of this plugin, then without, so that neither a boot nor what
// follows is slowed. MARK_END writes what ran since MARK_BEGIN to the file of the option out=. Each line
// begins with a word:
//   counting                         MARK_SWITCH: all before it belongs to another measurement
//   block ADDRESS ENDING SIZE,... CODE   code that runs as one piece: the sizes of its instructions, and the
//   bytes path PARENT ADDRESS              call paths, numbered from 1 in this order; 0 is where a window
//   began. The first
//                                    address is that of a call, the next is what it calls, then a call again
//   window INSTRUCTIONS              a window begins; what ran in it follows
//   ran PATH BLOCK TIMES             BLOCK counts from 0 in the order of the blocks
// Blocks and paths are written once, and hold for all windows that follow.
#include "decode.h"
#include "interface.h"
#include "marks.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

EXPORT int qemu_plugin_version = 1;

struct block {
    uint64_t start, next; // next: the address behind it, where its call returns to
    uint32_t number;      // from 1, once it has run in a window
    uint32_t count;
    enum ending ending;
    struct block *same_hash;
    uint8_t *code;
    uint8_t sizes[];
};

struct frame {
    uint32_t path; // of the caller
    uint64_t returns_to;
};

struct cell { // of an open hash table; key 0 is free
    uint64_t key, times;
};

enum { BUCKETS = 1 << 16, CELLS = 1 << 19, DEEPEST = 512, LONGEST = 16 };

static const char *const ending_names[] = {
    [GOES_ON] = "on", [CALLS] = "call", [RETURNS] = "return", [BRANCHES] = "branch"};

static FILE *out;
static uint64_t self;
static bool armed, counting;
static uint64_t total;
static struct block *buckets[BUCKETS];
static uint32_t blocks, paths, path; // path: the one that is run
static const struct block *last;
static struct frame stack[DEEPEST];
static size_t depth;
static struct cell ran[CELLS], path_numbers[CELLS];

__attribute__((noreturn)) static void give_up(const char *why) {
    fprintf(stderr, "costplugin: %s\n", why);
    exit(1);
}

// Before QEMU reads the version: it runs as the plugin is loaded.
__attribute__((constructor)) static void choose_interface(void) {
    if (!qemu_plugin_n_vcpus)
        qemu_plugin_version = 3;
}

static size_t code_of(const struct qemu_plugin_insn *instruction, uint8_t *code) {
    size_t size = qemu_plugin_insn_size(instruction);

    size = size < LONGEST ? size : LONGEST;
    if (qemu_plugin_version >= 3) {
        qemu_plugin_insn_data(instruction, code, size);
    } else {
        const void *(*data)(const struct qemu_plugin_insn *) =
            (const void *(*)(const struct qemu_plugin_insn *))(void (*)(void))qemu_plugin_insn_data;
        memcpy(code, data(instruction), size);
    }
    return size;
}

static uint64_t mixed(uint64_t key) {
    key *= 0x9e3779b97f4a7c15;
    return key ^ key >> 29;
}

static struct cell *cell_of(struct cell *table, uint64_t key) {
    for (uint64_t i = mixed(key), tries = 0; tries < CELLS; i++, tries++) {
        struct cell *cell = &table[i % CELLS];
        if (cell->key == key || !cell->key) {
            cell->key = key;
            return cell;
        }
    }
    give_up("a window has too many call paths");
}

static uint32_t path_to(uint32_t parent, uint64_t address) {
    // The low half of an address tells the kernel's apart.
    struct cell *cell = cell_of(path_numbers, (uint64_t)(parent + 1) << 32 | (uint32_t)address);

    if (!cell->times) {
        cell->times = ++paths;
        fprintf(out, "path %u %" PRIx64 "\n", parent, address);
    }
    return cell->times;
}

// Follows calls and returns. An interrupt needs no frame: its handler returns before what it interrupted goes
// on.
static void follow(const struct block *block) {
    if (last && last->ending == CALLS && block->start != last->next && depth < DEEPEST) {
        stack[depth++] = (struct frame){path, last->next};
        path = path_to(path_to(path, last->next - 1), block->start);
    } else if (last && last->ending == RETURNS) {
        for (size_t i = depth; i-- > 0;) {
            if (stack[i].returns_to == block->start) {
                path = stack[i].path;
                depth = i;
                break;
            }
        }
    }
    last = block;
}

// QEMU runs a repeated string instruction once for each element. It counts once, as in a processor's counter.
static bool repeats(const struct block *block) {
    return last && block->count == 1 && block->start + block->sizes[0] == last->next &&
           block->sizes[0] == last->sizes[last->count - 1];
}

static void print_block(const struct block *block) {
    fprintf(out, "block %" PRIx64 " %s ", block->start, ending_names[block->ending]);
    for (uint32_t i = 0; i < block->count; i++)
        fprintf(out, "%s%u", i ? "," : "", block->sizes[i]);
    fputc(' ', out);
    for (uint64_t byte = 0; byte < block->next - block->start; byte++)
        fprintf(out, "%02x", block->code[byte]);
    fputc('\n', out);
}

static void executed(unsigned cpu, void *data) {
    struct block *block = data;

    (void)cpu;
    if (!counting || repeats(block))
        return;
    if (!block->number) {
        block->number = ++blocks;
        print_block(block);
    }
    follow(block);
    total += block->count;
    cell_of(ran, (uint64_t)path << 32 | block->number)->times++;
}

static void begin(void) {
    memset(ran, 0, sizeof(ran));
    total = depth = path = 0;
    last = NULL;
    counting = true;
}

static void end(void) {
    counting = false;
    fprintf(out, "window %" PRIu64 "\n", total);
    for (const struct cell *cell = ran; cell < ran + CELLS; cell++)
        if (cell->key)
            fprintf(out, "ran %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", cell->key >> 32,
                    (cell->key & UINT32_MAX) - 1, cell->times);
    fflush(out);
}

static void translated(uint64_t plugin, struct qemu_plugin_tb *tb);

static void translate_anew(uint64_t plugin) { qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated); }

// Programs that come and go leave their addresses to others: blocks and paths of one measurement end with it.
static void forget(void) {
    memset(path_numbers, 0, sizeof(path_numbers));
    for (size_t i = 0; i < BUCKETS; i++) {
        while (buckets[i]) {
            struct block *block = buckets[i];
            buckets[i] = block->same_hash;
            free(block->code);
            free(block);
        }
    }
    blocks = paths = 0;
}

static void marked(unsigned cpu, void *data) {
    enum mark mark = (uintptr_t)data;

    (void)cpu;
    if (mark == MARK_SWITCH) {
        armed = !armed;
        if (armed) {
            forget();
            fprintf(out, "counting\n");
        }
        qemu_plugin_reset(self, translate_anew);
    } else if (mark == MARK_BEGIN && armed) {
        begin();
    } else if (mark == MARK_END && counting) {
        end();
    }
}

static bool is_same(const struct block *block, uint64_t start, size_t count, const uint8_t *sizes,
                    enum ending ending) {
    return block->start == start && block->count == count && block->ending == ending &&
           !memcmp(block->sizes, sizes, count);
}

static struct block *block_of(const struct qemu_plugin_tb *tb) {
    size_t count = qemu_plugin_tb_n_insns(tb);
    const struct qemu_plugin_insn *final = qemu_plugin_tb_get_insn(tb, count - 1);
    uint64_t start = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));
    struct block **bucket = &buckets[mixed(start) % BUCKETS], *block;
    uint8_t sizes[count], code[LONGEST];
    enum ending ending = ending_of(code, code_of(final, code));

    for (size_t i = 0; i < count; i++)
        sizes[i] = qemu_plugin_insn_size(qemu_plugin_tb_get_insn(tb, i));
    for (block = *bucket; block; block = block->same_hash)
        if (is_same(block, start, count, sizes, ending))
            return block;
    block = malloc(sizeof(*block) + count);
    uint8_t *bytes = calloc(count, LONGEST);
    if (!block || !bytes)
        give_up("no memory");
    *block = (struct block){.start = start,
                            .next = qemu_plugin_insn_vaddr(final) + sizes[count - 1],
                            .count = count,
                            .ending = ending,
                            .same_hash = *bucket,
                            .code = bytes};
    memcpy(block->sizes, sizes, count);
    for (size_t i = 0; i < count; i++)
        bytes += code_of(qemu_plugin_tb_get_insn(tb, i), bytes);
    *bucket = block;
    return block;
}

static void translated(uint64_t plugin, struct qemu_plugin_tb *tb) {
    static const uint8_t mark[] = {MARK_BYTES(0)};
    (void)plugin;

    if (armed)
        qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, NO_REGISTERS, block_of(tb));
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(tb, i);
        uint8_t code[LONGEST];

        if (code_of(instruction, code) == sizeof(mark) && !memcmp(code, mark, 3) &&
            !memcmp(code + 4, mark + 4, 3))
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, marked, NO_REGISTERS,
                                                   (void *)(uintptr_t)code[3]);
    }
}

EXPORT int qemu_plugin_install(uint64_t plugin, const void *machine, int argc, char **argv) {
    (void)machine;
    self = plugin;
    if (argc != 1 || strncmp(argv[0], "out=", 4))
        give_up("out=FILE is missing");
    out = fopen(argv[0] + 4, "we");
    if (!out)
        give_up("the file of out= cannot be written");
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated);
    return 0;
}
