// SPDX-License-Identifier: Apache-2.0
#include "machine.h"
#include "fail.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

#ifdef __x86_64__
enum { RETURN = 0xc3 };

static unsigned char *add_part(unsigned char *code, unsigned number, uint16_t value) {
    const unsigned char part[] = {X86_PART(MARK_PART + number), value, value >> 8, 0, 0};

    return mempcpy(code, part, sizeof(part));
}

static unsigned char *add_end(unsigned char *code, enum mark mark) {
    const unsigned char end[] = {X86_MARK(mark), RETURN};

    return mempcpy(code, end, sizeof(end));
}
#else
enum { RETURN = 0xd65f03c0 };

static unsigned char *add_part(unsigned char *code, unsigned number, uint16_t value) {
    const uint32_t part = ARM64_PART(MARK_PART + number, (uint32_t)value);

    return mempcpy(code, &part, sizeof(part));
}

static unsigned char *add_end(unsigned char *code, enum mark mark) {
    const uint32_t end[] = {ARM64_MARK(mark), RETURN};

    return mempcpy(code, end, sizeof(end));
}
#endif

void tell(enum mark mark, uint64_t address) {
    unsigned char *code =
        mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (code == MAP_FAILED)
        fail("mark", errno, NULL, "no memory for a mark");
    unsigned char *end = code;
    for (unsigned number = 0; number < 4; number++)
        end = add_part(end, number, address >> 16 * number);
    end = add_end(end, mark);
    __builtin___clear_cache((char *)code, (char *)end);
    ((void (*)(void))code)();
    munmap(code, PAGE);
}
