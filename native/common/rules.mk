# SPDX-License-Identifier: Apache-2.0
# How every C tool is built. Its Makefile names
#   TOOL      the program
#   SHARED    what it uses of this folder: json.c fail.c …
#   EMBEDDED  BPF programs that travel inside its binary: NAME for NAME.bpf.c
#   LDLIBS    libraries
# and includes this file. It needs a C compiler, clang where there are BPF programs, and the libraries' headers.
# SANITIZE=1 builds with AddressSanitizer and UndefinedBehaviorSanitizer. STRICT=1 ends at a warning: tests do so; a user's
# compiler may be newer than ours, and warn of more.
CLANG ?= clang
CFLAGS ?= -O2 -g
COMMON := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
VPATH := $(COMMON)
SOURCES ?= $(filter-out %.bpf.c $(NOT_LINKED),$(wildcard *.c))
HEADERS := $(wildcard *.h */*.h $(COMMON)/*.h)
ifdef SANITIZE
SHARED += sanitized.c
endif
OBJECTS := $(SOURCES:.c=.o) $(SHARED:.c=.o) $(EMBEDDED:=.embedded.o)
C_FLAGS := -std=gnu11 -D_GNU_SOURCE -Wall -Wextra $(if $(STRICT),-Werror) -I$(COMMON)
# From v3 on clang 21 writes atomics with a result, which kernels before 5.12 refuse.
BPF_CPU ?= v2
BPF_CFLAGS = -O2 -g -target bpf -mcpu=$(BPF_CPU) -Wall -Wextra $(if $(STRICT),-Werror) -Wno-unused-parameter
# The second is there for this machine's compiler, the third for one of another architecture.
BPF_CFLAGS += -I$(COMMON) -I/usr/include/$(shell $(CC) -dumpmachine) -I/usr/$(shell $(CC) -dumpmachine)/include

ifdef SANITIZE
C_FLAGS += -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
endif

.DEFAULT_GOAL := $(TOOL)

$(TOOL): $(OBJECTS)
	$(CC) $(C_FLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

%.o: %.c $(HEADERS)
	$(CC) $(C_FLAGS) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

%.bpf.o: %.bpf.c $(HEADERS)
	$(CLANG) $(BPF_CFLAGS) -c -o $@ $<

%.embedded.o: %.bpf.o embed.S
	$(CC) -DNAME=$* -DFILE='"$<"' -c -o $@ $(COMMON)/embed.S

clean:
	rm -f $(TOOL) *.o */*.o $(ALSO_CLEAN)

.PHONY: clean
.DELETE_ON_ERROR:
.SECONDARY:
