/* Looks the driver's names up in every way that a program has, and prints where each answer lies.
 *
 *     lookups SONAME DRIVER FORWARDER PLUGIN local|global|none < questions
 *
 * DRIVER and FORWARDER are the files that addresses are told by; PLUGIN is lookups_plugin.c, which is linked to the library.
 * The last argument says how the library is loaded before. A question is a line of fields parted by tabs:
 *     dlsym NAME, main NAME, default NAME, next NAME    by the library's handle, dlopen(NULL)'s, RTLD_DEFAULT, RTLD_NEXT
 *     plugin NAME                                       RTLD_DEFAULT, asked by a library that was loaded later
 *     dlvsym NAME VERSION
 *     gpa NAME VERSION FLAGS, gpa1 ...                  cuGetProcAddress_v2, cuGetProcAddress
 * An answer is a line: "RESULT STATUS " before a place for the last two, and the place: - (dlerror says why) or -? (it does
 * not); driver+OFFSET; hook SYMBOL; FILE SYMBOL for any other. "~" before it: behind a stub of the forwarder's.
 * SPDX-License-Identifier: Apache-2.0 */
#include "places.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNWRITTEN 99

typedef int (*ask_v2)(const char *, void **, int, uint64_t, int *);
typedef int (*ask_v1)(const char *, void **, int, uint64_t);
typedef void *(*ask_plugin)(const char *);

static void *library;
static const char *plugin;
static ask_v2 get_v2;
static ask_v1 get_v1;

static void *ask_the_plugin(const char *name) {
  void *loaded = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
  ask_plugin look_up = loaded ? (ask_plugin)dlsym(loaded, "look_up_by_default") : NULL;
  return look_up ? look_up(name) : NULL;
}

static void print_looked_up(const void *found) {
  if (found)
    print_place(found);
  else
    printf(dlerror() ? "-\n" : "-?\n");
}

static void print_proc_address(const char *name, const char *version, const char *flags, int with_status) {
  void *found = NULL;
  int status = UNWRITTEN, asked = atoi(version);
  uint64_t kind = strtoull(flags, NULL, 0);
  int result = with_status ? get_v2(name, &found, asked, kind, &status) : get_v1(name, &found, asked, kind);
  printf("%d %d ", result, status);
  if (found)
    print_place(found);
  else
    printf("-\n");
}

static void answer(const char *kind, const char *name, const char *first, const char *second) {
  dlerror();
  if (!strcmp(kind, "dlsym")) print_looked_up(dlsym(library, name));
  if (!strcmp(kind, "main")) print_looked_up(dlsym(dlopen(NULL, RTLD_LAZY), name));
  if (!strcmp(kind, "default")) print_looked_up(dlsym(RTLD_DEFAULT, name));
  if (!strcmp(kind, "next")) print_looked_up(dlsym(RTLD_NEXT, name));
  if (!strcmp(kind, "plugin")) print_looked_up(ask_the_plugin(name));
  if (!strcmp(kind, "dlvsym")) print_looked_up(dlvsym(library, name, first));
  if (!strcmp(kind, "gpa")) print_proc_address(name, first, second, 1);
  if (!strcmp(kind, "gpa1")) print_proc_address(name, first, second, 0);
}

static char *field(char **rest) {
  char *found = strsep(rest, "\t");
  return found ? found : "";
}

int main(int argc, char **argv) {
  static char line[4096];
  if (argc != 6) return 2;
  places_of(argv[2], argv[3]);
  plugin = argv[4];
  int scope = strcmp(argv[5], "global") ? RTLD_LOCAL : RTLD_GLOBAL;
  library = strcmp(argv[5], "none") ? dlopen(argv[1], RTLD_NOW | scope) : NULL;
  if (library) {
    get_v2 = (ask_v2)dlsym(library, "cuGetProcAddress_v2");
    get_v1 = (ask_v1)dlsym(library, "cuGetProcAddress");
  }
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    char *rest = line, *kind = field(&rest), *name = field(&rest), *first = field(&rest), *second = field(&rest);
    answer(kind, name, first, second);
  }
  return 0;
}
