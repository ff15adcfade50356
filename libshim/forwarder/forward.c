/* Stands under the driver's name where the driver's library was, and hands every call on by one jump.
 *
 * A container finds this file as libcuda.so.1 (or, built from the other list, as libnvidia-ml.so.1); the driver's own
 * file is needed under a name that nobody else asks for. A hooked function leads to its hook in libaliquot.so, which is
 * the preloaded one where there is one: a process has one account, whichever way it came here. Every other function
 * leads to the driver's. One that the driver lacks is taken out of our symbol table, so that dlsym says so; one that we
 * do not know yet is found by the loader in the driver itself, because we need it.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHIM "libaliquot.so"
#define STUB_BYTES 16
#define HIDDEN __attribute__((visibility("hidden")))

/* One stub and the word it jumps by. Until the words are filled, calls are answered by aq_early. */
#if defined(__x86_64__)
#define JUMP "  endbr64\n  jmp *1f(%rip)\n"
#elif defined(__aarch64__)
#define JUMP "  hint #34\n  adrp x16, 1f\n  ldr x16, [x16, #:lo12:1f]\n  br x16\n"
#else
#error "no stubs for this machine"
#endif

#define STUB(symbol)                                                                                          \
  __asm__(".pushsection aq_stubs, \"ax\"\n.p2align 4\n.globl " #symbol "\n.type " #symbol ", %function\n"     \
          #symbol ":\n" JUMP ".size " #symbol ", .-" #symbol "\n.p2align 4\n.popsection\n"                    \
          ".pushsection aq_targets, \"aw\"\n.p2align 3\n1: .quad aq_early\n.popsection\n");

#define AQ_HOOK(symbol, name, since, stream, duty, parameters) STUB(symbol)
#define AQ_PASSED(symbol, name, since, stream, why)
#include AQ_HOOKS
#undef AQ_HOOK
#define AQ_FORWARD(symbol) STUB(symbol)
#include AQ_OTHERS

/* The hooked functions come first. */
#define AQ_HOOK(symbol, name, since, stream, duty, parameters) +1
enum { HOOKED = 0
#include AQ_HOOKS
};
#undef AQ_HOOK
#undef AQ_PASSED

extern const char __start_aq_stubs[] HIDDEN, __stop_aq_stubs[] HIDDEN;
extern void *__start_aq_targets[] HIDDEN;

HIDDEN int aq_early(void);
HIDDEN int aq_early(void) { return AQ_UNINITIALIZED; }

/* For who is linked to a function that the driver lacks, and never looked. */
static int absent(void) { return AQ_ABSENT; }

/* Without the interceptor nobody counts: what it would count is refused. */
static int refuse(void) { return AQ_REFUSED; }

typedef struct {
  ElfW(Addr) base;
  ElfW(Sym) * symbols;
  const char *strings;
  size_t count;
} symbol_table;

/* Entries of the dynamic section are relocated in place by some loaders and not by others. */
static void *place(ElfW(Addr) base, ElfW(Addr) value) { return (void *)(value < base ? value + base : value); }

static bool read_own_symbols(symbol_table *out) {
  Dl_info unused;
  struct link_map *self;
  if (!dladdr1(__start_aq_stubs, &unused, (void **)&self, RTLD_DL_LINKMAP)) return false;
  *out = (symbol_table){.base = self->l_addr};
  for (const ElfW(Dyn) *entry = self->l_ld; entry->d_tag != DT_NULL; entry++) {
    void *where = place(self->l_addr, entry->d_un.d_ptr);
    if (entry->d_tag == DT_SYMTAB) out->symbols = where;
    if (entry->d_tag == DT_STRTAB) out->strings = where;
    if (entry->d_tag == DT_HASH) out->count = ((const uint32_t *)where)[1];
  }
  return out->symbols && out->strings;
}

static bool protect(const symbol_table *table, int protection) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)table->symbols & ~(page - 1);
  return !mprotect((void *)from, (uintptr_t)(table->symbols + table->count) - from, protection);
}

/* The stub's number, or -1 where the symbol is none of ours. */
static long stub_of(const symbol_table *table, const ElfW(Sym) * symbol) {
  ElfW(Addr) address = table->base + symbol->st_value, start = (ElfW(Addr))__start_aq_stubs;
  bool stub = symbol->st_shndx != SHN_UNDEF && address >= start && address < (ElfW(Addr))__stop_aq_stubs;
  return stub ? (long)((address - start) / STUB_BYTES) : -1;
}

static void *target(void *driver, void *shim, const char *name, bool hooked) {
  void *own = dlsym(driver, name);
  if (!own) return (void *)absent;
  if (!hooked) return own;
  void *hook = shim ? dlsym(shim, name) : NULL;
  return hook ? hook : (void *)refuse;
}

static void hide(const symbol_table *table, ElfW(Sym) * symbol, bool *writable) {
  if (!*writable) *writable = protect(table, PROT_READ | PROT_WRITE);
  if (!*writable) return;
  symbol->st_shndx = SHN_UNDEF;
  symbol->st_value = 0;
}

static void fill(const symbol_table *table, void *driver, void *shim) {
  bool writable = false;
  for (size_t i = 0; i < table->count; i++) {
    ElfW(Sym) *symbol = &table->symbols[i];
    long number = stub_of(table, symbol);
    if (number < 0) continue;
    void *found = target(driver, shim, table->strings + symbol->st_name, number < HOOKED);
    __atomic_store_n(&__start_aq_targets[number], found, __ATOMIC_RELAXED);
    if (found == (void *)absent) hide(table, symbol, &writable);
  }
  if (writable) protect(table, PROT_READ);
}

/* Runs before the constructors of whoever needs us. The handles are kept: neither library may go while we lead there. */
__attribute__((constructor)) static void start(void) {
  symbol_table table;
  void *driver = dlopen(AQ_DRIVER, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  void *shim = dlopen(SHIM, RTLD_NOW | RTLD_LOCAL);
  if (!shim) fprintf(stderr, "aliquot: no " SHIM ", so " AQ_SONAME " refuses what it would count\n");
  if (driver && read_own_symbols(&table)) fill(&table, driver, shim);
  dlerror(); /* what the driver lacks is no error of the program's */
}
