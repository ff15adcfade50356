/* We define dlsym and dlvsym ourselves, so any reference of ours to them would be answered by ourselves: the C
 * library's are found by walking the loaded objects. Nothing here allocates or locks beyond dl_iterate_phdr, so it
 * may run before any constructor.
 * SPDX-License-Identifier: Apache-2.0 */
#include "elf_lookup.h"

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  const ElfW(Sym) * symbols;
  const char *strings;
  const uint32_t *hash; /* DT_GNU_HASH */
  const char *soname;
} dynamic_part;

typedef struct {
  const void *self;
  const char *soname;
  const char *symbol;
  bool passed_self;
  void *found;
} search;

/* The C library's own text functions may be a sanitizer's, which asks us before it can answer. */
static bool begins(const char *text, const char *with) {
  while (*with && *text == *with) text++, with++;
  return !*with;
}

static bool is_text(const char *text, const char *other) {
  while (*text && *text == *other) text++, other++;
  return *text == *other;
}

const void *aq_elf_place(uintptr_t base, uintptr_t value) { return (const void *)(value < base ? value + base : value); }

static bool read_dynamic(const struct dl_phdr_info *info, const ElfW(Dyn) * entry, dynamic_part *out) {
  ElfW(Addr) soname = 0;
  bool named = false;
  *out = (dynamic_part){.hash = NULL};
  for (; entry->d_tag != DT_NULL; entry++) {
    switch (entry->d_tag) {
      case DT_SYMTAB: out->symbols = aq_elf_place(info->dlpi_addr, entry->d_un.d_ptr); break;
      case DT_STRTAB: out->strings = aq_elf_place(info->dlpi_addr, entry->d_un.d_ptr); break;
      case DT_GNU_HASH: out->hash = aq_elf_place(info->dlpi_addr, entry->d_un.d_ptr); break;
      case DT_SONAME: soname = entry->d_un.d_val, named = true; break;
      default: break;
    }
  }
  if (!out->symbols || !out->strings || !out->hash) return false;
  out->soname = named ? out->strings + soname : "";
  return true;
}

static uint32_t gnu_hash(const char *name) {
  uint32_t h = 5381;
  for (; *name; name++) h = h * 33 + (unsigned char)*name;
  return h;
}

static const ElfW(Sym) * find_symbol(const dynamic_part *part, const char *name) {
  uint32_t buckets = part->hash[0], first = part->hash[1], bloom_words = part->hash[2];
  const uint32_t *bucket = part->hash + 4 + (size_t)bloom_words * (sizeof(ElfW(Addr)) / 4);
  const uint32_t *chain = bucket + buckets;
  uint32_t wanted = gnu_hash(name);
  if (!buckets) return NULL;
  uint32_t i = bucket[wanted % buckets];
  if (i < first) return NULL;
  for (;; i++) {
    uint32_t h = chain[i - first];
    const ElfW(Sym) *symbol = &part->symbols[i];
    bool same = (h | 1) == (wanted | 1) && symbol->st_shndx != SHN_UNDEF;
    if (same && is_text(part->strings + symbol->st_name, name)) return symbol;
    if (h & 1) return NULL;
  }
}

static bool contains(const struct dl_phdr_info *info, const void *address) {
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &info->dlpi_phdr[i];
    ElfW(Addr) start = info->dlpi_addr + header->p_vaddr;
    if (header->p_type == PT_LOAD && (ElfW(Addr))address - start < header->p_memsz) return true;
  }
  return false;
}

static void look_into(const struct dl_phdr_info *info, const ElfW(Dyn) * dynamic, search *wanted) {
  dynamic_part part;
  if (!read_dynamic(info, dynamic, &part)) return;
  if (wanted->soname && !begins(part.soname, wanted->soname)) return;
  const ElfW(Sym) *symbol = find_symbol(&part, wanted->symbol);
  if (symbol) wanted->found = (void *)(info->dlpi_addr + symbol->st_value);
}

static int visit(struct dl_phdr_info *info, size_t size, void *data) {
  search *wanted = data;
  (void)size;
  if (contains(info, wanted->self)) {
    wanted->passed_self = true;
    return 0;
  }
  if (!wanted->passed_self && !wanted->soname) return 0;
  for (int i = 0; i < info->dlpi_phnum && !wanted->found; i++) {
    if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    look_into(info, (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr), wanted);
  }
  return wanted->found != NULL;
}

typedef int (*iterate_function)(int (*)(struct dl_phdr_info *, size_t, void *), void *);

/* The C library's own dl_iterate_phdr, found without calling anything: the loader's list of what is loaded. */
static iterate_function own_iterate(void) {
  for (const struct link_map *at = _r_debug.r_map; at; at = at->l_next) {
    struct dl_phdr_info info = {.dlpi_addr = at->l_addr};
    search wanted = {.soname = "libc.so", .symbol = "dl_iterate_phdr"};
    if (at->l_ld) look_into(&info, at->l_ld, &wanted);
    if (wanted.found) return (iterate_function)wanted.found;
  }
  return dl_iterate_phdr;
}

void *aq_elf_next(const void *self, const char *soname, const char *symbol) {
  search wanted = {.self = self, .soname = soname, .symbol = symbol};
  own_iterate()(visit, &wanted);
  return wanted.found;
}
