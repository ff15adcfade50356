/* Tries, in one of the ways that programs reach the driver, to get more memory than its slice of 64 MiB, and prints how
 * it went: "held", "bypass" or "no driver". The first argument names the way; `linked` and `static` are builds of this.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOO_MUCH ((size_t)65 << 20)
#define FITS ((size_t)1 << 20)

typedef int (*init_function)(unsigned);
typedef int (*retain_function)(void **, int);
typedef int (*set_function)(void *);
typedef int (*allocate_function)(unsigned long long *, size_t);
typedef int (*address_function)(const char *, void **, int, uint64_t, int *);

static int try(init_function init, retain_function retain, set_function set, allocate_function allocate) {
  void *context;
  unsigned long long pointer;
  if (!init || !retain || !set || !allocate || init(0) || retain(&context, 0) || set(context)) return puts("no driver"), 0;
  int refused = allocate(&pointer, TOO_MUCH);
  if (!refused) return puts("bypass"), 0;
  return printf(allocate(&pointer, FITS) ? "refused everything: %d\n" : "held\n", refused), 0;
}

#ifdef LINKED
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, size_t);

/* The plugin's only name. */
int attempt(void);
int attempt(void) { return try(cuInit, cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuMemAlloc_v2); }
#endif

#ifndef PLUGIN
#ifndef LINKED
static int by_handle(void *library) {
  if (!library) return fprintf(stderr, "%s\n", dlerror()), puts("no driver"), 0;
  return try((init_function)dlsym(library, "cuInit"), (retain_function)dlsym(library, "cuDevicePrimaryCtxRetain"),
             (set_function)dlsym(library, "cuCtxSetCurrent"), (allocate_function)dlsym(library, "cuMemAlloc_v2"));
}

/* For programs that may not outlive their driver. */
static int in_child(void) {
  int status = 0;
  pid_t child = fork();
  if (!child) exit(by_handle(dlopen("libcuda.so.1", RTLD_NOW)));
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? (puts("no driver"), 0) : 0;
}

#ifdef __GLIBC__
static int by_namespace(void) { return by_handle(dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW)); }

/* The library brings its own search order: its names are bound to what it needs itself. */
static int by_plugin(const char *path) {
  void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  int (*attempt)(void) = plugin ? (int (*)(void))dlsym(plugin, "attempt") : NULL;
  return attempt ? attempt() : (puts("no driver"), 0);
}
#else
static int by_namespace(void) { return 2; }
static int by_plugin(const char *path) { return path != NULL; }
#endif

/* As the CUDA runtime does, linked into the program or not: one dlsym, everything else by cuGetProcAddress. */
static int by_address(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW), *found[4] = {NULL};
  static const char *const names[] = {"cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc"};
  address_function ask = library ? (address_function)dlsym(library, "cuGetProcAddress_v2") : NULL;
  int status;
  for (int i = 0; ask && i < 4; i++) ask(names[i], &found[i], 12000, 0, &status);
  return try((init_function)found[0], (retain_function)found[1], (set_function)found[2], (allocate_function)found[3]);
}

/* The same program again, which opens the library at `path`, or the driver by name where there is none. */
static int without_environment(char *program, char *path) {
  return execve(program, (char *[]){program, *path ? "path" : NULL, path, NULL}, (char *[]){NULL});
}

/* Nothing stands before the card's device node. */
static int by_node(const char *path) {
  int node = open(path, O_RDWR | O_CLOEXEC);
  return puts(node >= 0 ? "bypass" : "held"), 0;
}
#endif

int main(int argc, char **argv) {
  const char *way = argc > 1 ? argv[1] : "name";
  char *path = argc > 2 ? argv[2] : "";
  setenv("SIMGPU_DIR", "/machine", 0); /* the simulated driver's, also where there is no environment */
  (void)path;
#ifdef LINKED
  return (void)way, attempt();
#else
  if (!strcmp(way, "name")) return by_handle(dlopen("libcuda.so.1", RTLD_NOW));
  if (!strcmp(way, "child")) return in_child();
  if (!strcmp(way, "path")) return by_handle(dlopen(path, RTLD_NOW));
  if (!strcmp(way, "address")) return by_address();
  if (!strcmp(way, "namespace")) return by_namespace();
  if (!strcmp(way, "plugin")) return by_plugin(path);
  if (!strcmp(way, "node")) return by_node(path);
  if (!strcmp(way, "empty")) return without_environment(argv[0], path);
  if (!strcmp(way, "own")) return setenv("LD_PRELOAD", path, 1), execl(argv[0], argv[0], (char *)NULL);
  return 2;
#endif
}
#endif
