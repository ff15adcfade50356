/* cuGetProcAddress: the driver answers first, and only an answer whose ABI we know is replaced by its hook.
 *
 * A row stands for its symbol from `since` on. The driver's answer belongs to a row if the driver gives the same
 * function for the row's own version and stream flavour. A driver newer than our table may have given the name a newer
 * ABI: its answer then belongs to no row, and the caller gets it as it is. A row newer than the driver proves nothing,
 * because a driver asked for a version it does not know may fall back to an older ABI.
 * SPDX-License-Identifier: Apache-2.0 */
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

/* Whether the driver's answer is the very function which it gives for this row. */
static bool is_row(const aq_hook *row, ask_function ask, const char *symbol, const void *answer, uint64_t flags) {
  void *its = NULL;
  if (row->stream == AQ_STREAM_LEGACY) flags = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  if (row->stream == AQ_STREAM_PER_THREAD) flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  return ask(symbol, &its, row->since, flags) == CUDA_SUCCESS && its == answer;
}

/* The driver takes a negative version for a very new one, and so do we. */
static void *replacement(ask_function ask, const char *symbol, void *answer, int version, uint64_t flags) {
  int known = driver_version();
  aq_hook_search rows = aq_hooks_named(symbol);
  for (const aq_hook *row; (row = aq_hook_next(&rows));) {
    bool spoken = (unsigned)row->since <= (unsigned)version && (!known || row->since <= known);
    if (spoken && is_row(row, ask, symbol, answer, flags)) return row->hook;
  }
  return answer;
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
