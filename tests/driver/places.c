/* Addresses are told by the file that the loader mapped, not by its name: a forwarder has the driver's.
 * SPDX-License-Identifier: Apache-2.0 */
#include "places.h"

#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define INTERCEPTOR "libaliquot.so"

static struct stat driver, forwarder;

void places_of(const char *driver_path, const char *forwarder_path) {
  if (stat(driver_path, &driver)) driver.st_ino = 0;
  if (stat(forwarder_path, &forwarder)) forwarder.st_ino = 0;
}

static int is_file(const char *path, const struct stat *wanted) {
  struct stat found;
  return wanted->st_ino && !stat(path, &found) && found.st_ino == wanted->st_ino && found.st_dev == wanted->st_dev;
}

/* A stub jumps by a word: what it leads to is what counts. NULL where this is none. */
static const void *behind_stub(const unsigned char *code) {
#if defined(__x86_64__)
  static const unsigned char jump[] = {0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25}; /* endbr64; jmp *OFFSET(%rip) */
  int32_t offset;
  if (memcmp(code, jump, sizeof jump)) return NULL;
  memcpy(&offset, code + sizeof jump, sizeof offset);
  return *(const void *const *)(code + sizeof jump + sizeof offset + offset);
#else
  (void)code;
  return NULL;
#endif
}

void print_place(const void *address) {
  Dl_info info;
  struct link_map *object;
  if (!dladdr1(address, &info, (void **)&object, RTLD_DL_LINKMAP)) {
    printf("nowhere\n");
    return;
  }
  const char *file = strrchr(info.dli_fname, '/');
  file = file ? file + 1 : info.dli_fname;
  if (is_file(info.dli_fname, &forwarder) && behind_stub(address)) {
    printf("~");
    print_place(behind_stub(address));
  } else if (is_file(info.dli_fname, &driver)) {
    printf("driver+%lx\n", (unsigned long)((ElfW(Addr))address - object->l_addr));
  } else if (!strcmp(file, INTERCEPTOR)) {
    printf("hook %s\n", info.dli_sname ? info.dli_sname : "?");
  } else {
    printf("%s %s\n", file, info.dli_sname ? info.dli_sname : "?");
  }
}
