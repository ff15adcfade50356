/* cuGetProcAddress: the driver answers first, and only an answer whose ABI we know is replaced by its hook.
 *
 * A row stands for its symbol from `since` on. The newest row of that name and stream flavour which caller and driver
 * both know is the candidate; but a driver newer than our table may have given the name a newer ABI. Then the driver's
 * answer for this version differs from its answer for `since`, and the caller gets the driver's own.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "loader.h"

typedef int (*ask_function)(const char *symbol, void **pfn, int version, uint64_t flags);

static int ask_v2(const char *symbol, void **pfn, int version, uint64_t flags) {
  int status;
  return AQ_CUDA(cuGetProcAddress_v2)(symbol, pfn, version, flags, &status);
}

static int driver_version(void) {
  static int known; /* relaxed: a number that never changes */
  int version = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (version) return version;
  if (!AQ_CUDA(cuDriverGetVersion) || AQ_CUDA(cuDriverGetVersion)(&version) != CUDA_SUCCESS) return 0;
  __atomic_store_n(&known, version, __ATOMIC_RELAXED);
  return version;
}

/* The newest row of this name and flavour that is not newer than `version`. */
static const aq_hook *newest_row(const char *name, int version, uint64_t flags) {
  bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  int flavour = per_thread ? AQ_STREAM_PER_THREAD : AQ_STREAM_LEGACY;
  const aq_hook *best = NULL;
  size_t count;
  const aq_hook *rows = aq_hooks(&count);
  for (size_t i = 0; i < count; i++) {
    bool fits = rows[i].since <= version && (rows[i].stream == AQ_STREAM_ANY || rows[i].stream == flavour);
    if (fits && (!best || rows[i].since > best->since) && !strcmp(rows[i].name, name)) best = &rows[i];
  }
  return best;
}

static void *replacement(ask_function ask, const char *symbol, void *answer, int version, uint64_t flags) {
  int known = driver_version();
  const aq_hook *row = newest_row(symbol, known && known < version ? known : version, flags);
  if (!row) return answer;
  void *then = NULL;
  if (ask(symbol, &then, row->since, flags) != CUDA_SUCCESS || then != answer) return answer;
  return row->hook;
}

int cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags) {
  if (!AQ_CUDA(cuGetProcAddress)) return CUDA_ERROR_NOT_FOUND;
  int result = AQ_CUDA(cuGetProcAddress)(symbol, pfn, version, flags);
  if (result == CUDA_SUCCESS && symbol && pfn && *pfn)
    *pfn = replacement(AQ_CUDA(cuGetProcAddress), symbol, *pfn, version, flags);
  return result;
}

int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status) {
  if (!AQ_CUDA(cuGetProcAddress_v2)) return CUDA_ERROR_NOT_FOUND;
  int result = AQ_CUDA(cuGetProcAddress_v2)(symbol, pfn, version, flags, status);
  if (result == CUDA_SUCCESS && symbol && pfn && *pfn) *pfn = replacement(ask_v2, symbol, *pfn, version, flags);
  return result;
}
