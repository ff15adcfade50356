/* Finds the real functions: the C library's dlsym, then with it the driver's and NVML's.
 *
 * Where a forwarder stands under the driver's soname, the driver is loaded under a name of its own. Else it is looked for
 * among the loaded libraries by its soname; a program that loaded it under another name has shown us its handle through
 * dlsym. The handle is kept: the driver stays loaded as long as its callers.
 * SPDX-License-Identifier: Apache-2.0 */
#include "loader.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "elf_lookup.h"

#define CUDA_LIBRARY "libcuda.so.1"
#define NVML_LIBRARY "libnvidia-ml.so.1"

/* The driver's files behind forwarders (forwarder/forward.c). */
#define CUDA_BEHIND "libcuda-real.so.1"
#define NVML_BEHIND "libnvidia-ml-real.so.1"

aq_cuda_functions aq_cuda_table;
aq_nvml_functions aq_nvml_table;
int aq_cuda_loaded, aq_nvml_loaded;

/* Handles the program used, until the tables are filled. Relaxed: a handle is a number, valid in every thread. */
static void *learnt_cuda, *learnt_nvml;

typedef void *(*dlsym_function)(void *, const char *);
typedef void *(*dlvsym_function)(void *, const char *, const char *);

static void *libc_function(const char *name) {
  void *found = aq_elf_next(&aq_cuda_loaded, "libc.so", name);
  return found ? found : aq_elf_next(&aq_cuda_loaded, "libdl.so", name); /* glibc before 2.34 */
}

void *aq_real_dlsym(void *handle, const char *symbol) {
  static void *function;
  if (!__atomic_load_n(&function, __ATOMIC_RELAXED)) __atomic_store_n(&function, libc_function("dlsym"), __ATOMIC_RELAXED);
  return function ? ((dlsym_function)function)(handle, symbol) : NULL;
}

void *aq_real_dlvsym(void *handle, const char *symbol, const char *version) {
  static void *function;
  if (!__atomic_load_n(&function, __ATOMIC_RELAXED)) __atomic_store_n(&function, libc_function("dlvsym"), __ATOMIC_RELAXED);
  return function ? ((dlvsym_function)function)(handle, symbol, version) : NULL;
}

void *aq_loaded_library(const char *symbol) {
  return dlopen(symbol[0] == 'c' ? CUDA_LIBRARY : NVML_LIBRARY, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
}

void aq_loader_learn(void *handle, const char *symbol) {
  void **learnt = symbol[0] == 'c' ? &learnt_cuda : &learnt_nvml;
  if (!__atomic_load_n(learnt, __ATOMIC_RELAXED)) __atomic_store_n(learnt, handle, __ATOMIC_RELAXED);
}

bool aq_is_forwarder(const void *function) {
  Dl_info unused;
  struct link_map *object;
  const char *strings = NULL;
  if (!dladdr1(function, &unused, (void **)&object, RTLD_DL_LINKMAP)) return false;
  for (const ElfW(Dyn) *entry = object->l_ld; entry->d_tag != DT_NULL; entry++)
    if (entry->d_tag == DT_STRTAB) strings = (const char *)aq_elf_place(object->l_addr, entry->d_un.d_ptr);
  for (const ElfW(Dyn) *entry = object->l_ld; strings && entry->d_tag != DT_NULL; entry++) {
    const char *name = strings + entry->d_un.d_val;
    if (entry->d_tag == DT_NEEDED && (!strcmp(name, CUDA_BEHIND) || !strcmp(name, NVML_BEHIND))) return true;
  }
  return false;
}

static void *open_library(const char *behind, const char *soname, void **learnt) {
  void *handle = dlopen(behind, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (!handle) handle = dlopen(soname, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (!handle) handle = __atomic_load_n(learnt, __ATOMIC_RELAXED);
  return handle ? handle : dlopen(soname, RTLD_LAZY | RTLD_LOCAL);
}

/* Looks `symbol` up in the library, never answering with our own hook of that name. */
static void *real_function(void *library, const char *symbol) {
  void *found = library ? aq_real_dlsym(library, symbol) : NULL;
  const aq_hook *row = aq_hook_by_symbol(symbol);
  return row && row->hook == found ? NULL : found;
}

/* Threads that race fill the same words with the same values. */
#define FILL(table, symbol) __atomic_store_n((void **)&table.symbol, real_function(library, #symbol), __ATOMIC_RELAXED);

#define AQ_HOOK(symbol, name, since, stream, duty, parameters) FILL(aq_cuda_table, symbol)
#define AQ_PLAIN(symbol, parameters) FILL(aq_cuda_table, symbol)
void aq_load_cuda(void) {
  void *library = open_library(CUDA_BEHIND, CUDA_LIBRARY, &learnt_cuda);
#include "hooks/cuda.def"
#include "hooks/plain.def"
  __atomic_store_n(&aq_cuda_loaded, library != NULL, __ATOMIC_RELEASE);
}
#undef AQ_PLAIN
#undef AQ_HOOK

#define AQ_HOOK(symbol, name, since, stream, duty, parameters) FILL(aq_nvml_table, symbol)
#define AQ_PLAIN(symbol, parameters) FILL(aq_nvml_table, symbol)
void aq_load_nvml(void) {
  void *library = open_library(NVML_BEHIND, NVML_LIBRARY, &learnt_nvml);
  (void)library; /* in case there are no rows */
#include "hooks/nvml.def"
#include "hooks/nvml_plain.def"
  __atomic_store_n(&aq_nvml_loaded, library != NULL, __ATOMIC_RELEASE);
}
