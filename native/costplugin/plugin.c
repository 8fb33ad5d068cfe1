// SPDX-License-Identifier: Apache-2.0
// A plugin of QEMU that counts a guest's instructions between two marks, by call path and translated block.
//
// Marks are no-ops that a driver has in the guest (marks.h). MARK_SWITCH makes QEMU translate
// all code anew, at first with calls of this plugin, then without, so that neither a boot nor what follows is
// slowed. MARK_END writes to the file of the option out= what ran since MARK_BEGIN below the function of
// MARK_ROOT and in the application of MARK_APPLICATION, or all that ran since MARK_CALL. Each line begins
// with a word:
//
// counting: MARK_SWITCH. All before it belongs to another measurement.
//
// machine NAME: of the guest, if it is not x86_64.
//
// block ADDRESS ENDING SIZE,... CODE: code that runs as one piece, the sizes of its instructions, its bytes.
//
// path PARENT ADDRESS: call paths, numbered from 1 in this order; 0 is above the root. The first address is
// that of a call, the next is what it calls, then a call again.
//
// window: a window begins; what ran in it follows.
//
// ran PATH BLOCK TIMES: BLOCK counts from 0 in the order of the blocks.
//
// took INSTRUCTIONS TIMES: runs of the program of MARK_PROGRAM, with what it calls.
//
// look PATH INSTRUCTIONS: after MARK_CALL, a look at the clock; what ran since the last look follows, and the
// window has the rest.
//
// shorter BLOCK: its last instruction runs in the next block only.
//
// touched PATH BLOCK ADDRESS: a cache line that a block read or wrote, once; after MARK_TOUCH, for which QEMU
// translates anew, with a call at each access.
//
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

struct touch { // of an open hash table; path 0 is free
    uint32_t path, block;
    uint64_t address; // of the cache line
};

struct cell { // of an open hash table; key 0 is free
    uint64_t key, times;
};

enum {
    BUCKETS = 1 << 16,
    CELLS = 1 << 19,
    TOUCHES = 1 << 16,
    DEEPEST = 512,
    LONGEST = 16,
    LINE = 64,
    PAGE = 4096
};

static const char *const ending_names[] = {
    [GOES_ON] = "on", [CALLS] = "call", [RETURNS] = "return", [BRANCHES] = "branch"};

static FILE *out;
static const struct machine *machine = &x86_64;
static uint64_t self;
static bool armed, counting, cutting, touching;
static uint64_t total;          // since the last cut
static uint64_t marked_address; // whose parts came last
static uint64_t root, program;  // entries: of the function below which frames are sent, of the program
static uint64_t application, application_end; // code of the process that takes frames in user space
static uint64_t taken;                        // by the program's run
static size_t run_depth;                      // at the program's entry; 0: it does not run
static struct block *buckets[BUCKETS];
static uint32_t blocks, paths, path; // path: the one that is run
static struct block *last;
static struct frame stack[DEEPEST];
static size_t depth;
static struct cell ran[CELLS], took[CELLS], path_numbers[CELLS];
static uint32_t used[CELLS], used_count; // cells of ran
static struct touch touches[TOUCHES];

__attribute__((noreturn)) static void give_up(const char *why) {
    fprintf(stderr, "costplugin: %s\n", why);
    exit(1);
}

// Before QEMU reads the version: it runs as the plugin is loaded.
__attribute__((constructor)) static void choose_interface(void) {
    if (!qemu_plugin_n_vcpus)
        qemu_plugin_version = qemu_plugin_set_pc ? 7 : 3;
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

static uint64_t cell_key(uint32_t on, const struct block *block) {
    return (uint64_t)on << 32 | block->number;
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

// Follows calls and returns, by paths from the root on. An interrupt needs no frame: its handler returns
// before what it interrupted goes on.
static void follow(struct block *block) {
    if (last && last->ending == CALLS && block->start != last->next && depth < DEEPEST) {
        stack[depth++] = (struct frame){path, last->next};
        path = path ? path_to(path_to(path, last->next - 1), block->start) : 0;
    } else if (last && last->ending == RETURNS) {
        for (size_t i = depth; i-- > 0;) {
            if (stack[i].returns_to == block->start) {
                path = stack[i].path;
                depth = i;
                break;
            }
        }
    }
    uint64_t top = block->start - application < application_end - application ? application : root;
    if (!path && (block->start == root || top == application))
        path = path_to(path_to(0, top), top);
    last = block;
}

static void count_runs(const struct block *block) {
    if (run_depth && depth < run_depth) {
        cell_of(took, taken)->times++;
        run_depth = 0;
    }
    if (path && block->start == program) {
        run_depth = depth;
        taken = 0;
    }
    taken += block->count;
}

// QEMU runs a repeated string instruction once for each element. It counts once, as in a processor's counter.
static bool repeats(const struct block *block) {
    return last && block->count == 1 && block->ending == GOES_ON &&
           block->start + block->sizes[0] == last->next && block->sizes[0] == last->sizes[last->count - 1];
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

// A block ends before an instruction that crosses a page; QEMU 7.2 tells of it in both blocks all the same.
static bool is_told_twice(const struct block *block) {
    return last && last->count > 1 && block->start == last->next - last->sizes[last->count - 1] &&
           block->start / PAGE != (block->start + block->sizes[0] - 1) / PAGE;
}

static void shorten_last(const struct block *next) {
    last->next = next->start;
    last->ending = GOES_ON;
    last->count--;
    taken--;
    if (!last->number)
        return;
    total--;
    fprintf(out, "shorter %u\n", last->number - 1);
}

static void executed(unsigned cpu, void *data) {
    struct block *block = data;

    (void)cpu;
    if (!counting || repeats(block))
        return;
    if (is_told_twice(block))
        shorten_last(block);
    follow(block);
    count_runs(block);
    if (!path)
        return;
    if (!block->number) {
        block->number = ++blocks;
        print_block(block);
    }
    struct cell *cell = cell_of(ran, cell_key(path, block));
    if (!cell->times++)
        used[used_count++] = cell - ran;
    total += block->count;
}

static void touch(uint64_t address) {
    struct touch here = {path, last->number, address / LINE * LINE};

    for (uint64_t i = mixed(address / LINE ^ mixed(cell_key(path, last))), tries = 0; tries < TOUCHES;
         i++, tries++) {
        struct touch *slot = &touches[i % TOUCHES];
        if (!slot->path)
            *slot = here;
        if (slot->path == here.path && slot->block == here.block && slot->address == here.address)
            return;
    }
    give_up("a window touches too many cache lines");
}

static void accessed(unsigned cpu, uint32_t access, uint64_t address, void *data) {
    (void)cpu, (void)data;
    if (!counting || !path)
        return;
    touch(address);
    touch(address + (1U << qemu_plugin_mem_size_shift(access)) - 1);
}

static void begin(bool is_call) {
    memset(took, 0, sizeof(took));
    memset(touches, 0, sizeof(touches));
    depth = run_depth = total = 0;
    path = is_call ? path_to(0, 1) : 0; // a call's paths begin here, whatever the root is
    last = NULL;
    counting = true;
    cutting = is_call;
}

// Writes what ran, and forgets it.
static void print_ran(void) {
    for (uint32_t i = 0; i < used_count; i++)
        fprintf(out, "ran %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", ran[used[i]].key >> 32,
                (ran[used[i]].key & UINT32_MAX) - 1, ran[used[i]].times);
    for (uint32_t i = 0; i < used_count; i++)
        ran[used[i]] = (struct cell){};
    used_count = total = 0;
}

// The instruction that reads the clock is the last of its block, and belongs to what ran before.
static void looked(unsigned cpu, void *data) {
    (void)cpu, (void)data;
    if (!counting || !cutting)
        return;
    fprintf(out, "look %u %" PRIu64 "\n", path, total);
    print_ran();
}

static void end(void) {
    counting = false;
    fprintf(out, "window\n");
    print_ran();
    for (const struct cell *cell = took; cell < took + CELLS; cell++)
        if (cell->key)
            fprintf(out, "took %" PRIu64 " %" PRIu64 "\n", cell->key, cell->times);
    for (const struct touch *one = touches; one < touches + TOUCHES; one++)
        if (one->path)
            fprintf(out, "touched %u %u %" PRIx64 "\n", one->path, one->block - 1, one->address);
    fflush(out);
}

static void translated(uintptr_t first, uintptr_t second);

static void translate_anew(uintptr_t data) {
    (void)data;
    qemu_plugin_register_vcpu_tb_trans_cb(self, translated, NULL);
}

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

static void switch_counting(void) {
    armed = !armed;
    touching = false;
    if (armed) {
        forget();
        fprintf(out, "counting\n");
        if (machine != &x86_64)
            fprintf(out, "machine %s\n", machine->name);
    }
    qemu_plugin_reset(self, translate_anew, NULL);
}

static void marked(unsigned cpu, void *data) {
    unsigned mark = (uintptr_t)data >> 16, shift = (mark - MARK_PART) * 16;
    uint64_t *const places[] = {&root, &program, &application, &application_end};

    (void)cpu;
    if (mark >= MARK_PART) {
        marked_address = (marked_address & ~(0xffffULL << shift)) | ((uintptr_t)data & 0xffff) << shift;
    } else if (mark >= MARK_ROOT) {
        *places[mark - MARK_ROOT] = marked_address;
    } else if (mark == MARK_SWITCH) {
        switch_counting();
    } else if (mark == MARK_TOUCH && armed) {
        touching = true;
        qemu_plugin_reset(self, translate_anew, NULL);
    } else if (mark == MARK_BEGIN && armed) {
        begin(false);
    } else if (mark == MARK_CALL && armed) {
        begin(true);
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
    enum ending ending = machine->ending_of(code, code_of(final, code));

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

static void watch(struct qemu_plugin_insn *instruction) {
    uint8_t code[LONGEST];
    size_t size = code_of(instruction, code);
    uint16_t value = 0;
    unsigned mark = machine->mark_of(code, size, &value);

    if (mark)
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, marked, NO_REGISTERS,
                                               (void *)((uintptr_t)mark << 16 | value));
    else if (armed && machine->looks_at_clock(code, size))
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, looked, NO_REGISTERS, NULL);
    if (touching && !machine->may_be_left(code, size))
        qemu_plugin_register_vcpu_mem_cb(instruction, accessed, NO_REGISTERS, READS_AND_WRITES, NULL);
}

static void translated(uintptr_t first, uintptr_t second) {
    struct qemu_plugin_tb *tb = (struct qemu_plugin_tb *)(qemu_plugin_version >= 7 ? first : second);

    if (armed)
        qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, NO_REGISTERS, block_of(tb));
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++)
        watch(qemu_plugin_tb_get_insn(tb, i));
}

// What QEMU tells begins with the name of the guest's machine.
EXPORT int qemu_plugin_install(uint64_t plugin, const char *const *target, int argc, char **argv) {
    self = plugin;
    if (!strcmp(*target, aarch64.name))
        machine = &aarch64;
    else if (strcmp(*target, machine->name))
        give_up("only x86_64 and aarch64 are counted");
    if (argc != 1 || strncmp(argv[0], "out=", 4))
        give_up("out=FILE is missing");
    out = fopen(argv[0] + 4, "we");
    if (!out)
        give_up("the file of out= cannot be written");
    translate_anew(0);
    return 0;
}
