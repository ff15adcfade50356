/* Finds the real functions of the driver and of NVML.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_LOADER_H
#define AQ_LOADER_H

#include <stdbool.h>

#include "hooks.h"

extern aq_cuda_functions aq_cuda_table;
extern aq_nvml_functions aq_nvml_table;
extern int aq_cuda_loaded, aq_nvml_loaded; /* 1 (release) once the table is filled */

void aq_load_cuda(void);
void aq_load_nvml(void);

/* The driver's own function, or NULL where it has none: AQ_CUDA(cuMemAlloc_v2)(&dptr, bytes). */
#define AQ_CUDA(symbol) (aq_cuda_ready(), aq_cuda_table.symbol)
#define AQ_NVML(symbol) (aq_nvml_ready(), aq_nvml_table.symbol)

static inline void aq_cuda_ready(void) {
  if (__builtin_expect(!__atomic_load_n(&aq_cuda_loaded, __ATOMIC_ACQUIRE), 0)) aq_load_cuda();
}

static inline void aq_nvml_ready(void) {
  if (__builtin_expect(!__atomic_load_n(&aq_nvml_loaded, __ATOMIC_ACQUIRE), 0)) aq_load_nvml();
}

/* The C library's dlsym: never answered by ourselves. */
void *aq_real_dlsym(void *handle, const char *symbol);
void *aq_real_dlvsym(void *handle, const char *symbol, const char *version);

/* The driver or NVML, whichever `symbol` belongs to, if the program has loaded it under its usual name; else NULL. */
void *aq_loaded_library(const char *symbol);

/* Whether a function is a forwarder's: it leads to the hook of its own namespace already. */
bool aq_is_forwarder(const void *function);

/* Tells us of a library handle in which a driver function was found, for drivers loaded under unusual names. */
void aq_loader_learn(void *handle, const char *symbol);

#endif
