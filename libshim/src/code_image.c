/* Code may take more on the card than in its image: PTX is compiled, fat binaries are packed, and the driver allots in blocks
 * of 2 MiB. Four times the image is what packing saves at most, and it is no more than compilers make of PTX. Variables are
 * another matter: one line of PTX can declare gigabytes, so they are counted where the image shows them; a packed one does not.
 * SPDX-License-Identifier: Apache-2.0 */
#include "code_image.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BLOCK (UINT64_C(2) << 20)
#define EXPANSION 4

#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC 0xba55ed50u

typedef struct {
  uint32_t magic, version;
  const void *data;
} wrapper;

typedef struct {
  uint32_t magic;
  uint16_t version, header_size;
  uint64_t size;
} fatbin;

static uint64_t plus(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t times(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* Whole blocks, and one at least. */
static uint64_t bound(uint64_t bytes, uint64_t variables) {
  uint64_t all = plus(plus(times(bytes, EXPANSION), variables), BLOCK - 1);
  return all < BLOCK ? BLOCK : all == UINT64_MAX ? all : all - all % BLOCK;
}

/* Bytes of the element type at `text`: ".b8" has 8 bits; vectors have up to four elements. */
static uint64_t element_bytes(const char *text, const char *end) {
  uint64_t vector = 1, bytes = 8;
  for (; text < end; text++) {
    if (!strncmp(text, ".v2", 3) || !strncmp(text, ".v4", 3)) vector = (uint64_t)(text[2] - '0');
    if (text[0] == '.' && strchr("bsuf", text[1]) && text[2] >= '1' && text[2] <= '9') bytes = strtoul(text + 2, NULL, 10) / 8;
  }
  return times(vector, bytes ? bytes : 1);
}

/* Bytes that one declaration of PTX, from its state space to its semicolon, sets aside. */
static uint64_t declared(const char *text, const char *end) {
  const char *first = memchr(text, '[', (size_t)(end - text));
  uint64_t bytes = element_bytes(text, first ? first : end);
  for (const char *at = first; at && at < end; at = memchr(at + 1, '[', (size_t)(end - at - 1)))
    if (at[1] != ']') bytes = times(bytes, strtoull(at + 1, NULL, 0));
  return bytes;
}

/* Variables in the card's memory: declarations only, since instructions name a space with a type behind it (ld.global.u32). */
static uint64_t ptx_variables(const char *text) {
  uint64_t bytes = 0;
  for (const char *at = text; (at = strstr(at, ".global")); at++) {
    const char *end = at + strcspn(at, ";={");
    if (at[7] != ' ' && at[7] != '\t') continue;
    bytes = plus(bytes, declared(at + 7, end));
  }
  return bytes;
}

static uint64_t elf_bound(const Elf64_Ehdr *header) {
  const Elf64_Shdr *sections = (const Elf64_Shdr *)((const char *)header + header->e_shoff);
  uint64_t file = header->e_shoff + (uint64_t)header->e_shnum * sizeof *sections, memory = 0;
  for (unsigned i = 0; i < header->e_shnum; i++)
    if (sections[i].sh_flags & SHF_ALLOC) memory = plus(memory, sections[i].sh_size);
  return bound(file, memory);
}

uint64_t aq_image_bound(const void *image) {
  uint32_t magic;
  if (!image) return bound(0, 0);
  if (!strncmp(image, ELFMAG, SELFMAG)) return elf_bound(image);
  if (strlen(image) >= sizeof magic) {
    memcpy(&magic, image, sizeof magic);
    if (magic == WRAPPER_MAGIC) return aq_image_bound(((const wrapper *)image)->data);
    if (magic == FATBIN_MAGIC) return bound(((const fatbin *)image)->size, 0);
  }
  return bound(strlen(image), ptx_variables(image));
}

uint64_t aq_image_bound_of_file(const char *path) {
  struct stat info;
  return bound(path && !stat(path, &info) ? (uint64_t)info.st_size : 0, 0);
}
