/* The hook table, expanded from the .def files in hooks/: one row is one function of the driver's ABI.
 *
 *   AQ_HOOK(symbol, name, since, stream, duty, parameters)
 *     symbol      the exported ABI symbol; we define a function of this name
 *     name        what cuGetProcAddress calls it
 *     since       the CUDA version (cuGetProcAddress's notation) from which `name` means this symbol
 *     stream      ANY; or LEGACY / PER_THREAD where the default stream's flavour makes two symbols of one name
 *     duty        what the hook is there for: for people and the coverage report, not in the library
 *     parameters  the prototype; every function returns an int-sized status
 *
 * A file of hooks holds no policy and a file of policy no hooks' tables: to hook a function, add its row and define it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_HOOKS_H
#define AQ_HOOKS_H

#include "cuda_abi.h"
#include "nvml_abi.h"

#define AQ_EXPORT __attribute__((visibility("default")))

/* Prototypes of the hooks. */
#define AQ_HOOK(symbol, name, since, stream, duty, parameters) AQ_EXPORT int symbol parameters;
#include "hooks/cuda.def"
#include "hooks/nvml.def"
#undef AQ_HOOK

/* The driver's own functions. A pointer is NULL where the driver lacks the function; see AQ_CUDA and AQ_NVML. */
#define AQ_HOOK(symbol, name, since, stream, duty, parameters) int(*symbol) parameters;
#define AQ_PLAIN(symbol, parameters) int(*symbol) parameters;
typedef struct {
#include "hooks/cuda.def"
#include "hooks/plain.def"
} aq_cuda_functions;
#undef AQ_PLAIN

#define AQ_PLAIN(symbol, parameters) int(*symbol) parameters;
typedef struct {
#include "hooks/nvml.def"
#include "hooks/nvml_plain.def"
} aq_nvml_functions;
#undef AQ_PLAIN
#undef AQ_HOOK

enum { AQ_STREAM_ANY, AQ_STREAM_LEGACY, AQ_STREAM_PER_THREAD };

typedef struct {
  const char *symbol;
  const char *name;
  int since;
  int stream;
  void *hook;
} aq_hook;

/* All rows; `count` is set to their number. */
const aq_hook *aq_hooks(size_t *count);

/* The row of an exported symbol, or NULL. Safe before any constructor has run. */
const aq_hook *aq_hook_by_symbol(const char *symbol);

/* The rows of a name, one after the other in the order of the table; NULL: no more. */
typedef struct {
  const char *name;
  uint32_t at;
} aq_hook_search;
aq_hook_search aq_hooks_named(const char *name);
const aq_hook *aq_hook_next(aq_hook_search *search);

#endif
