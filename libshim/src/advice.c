/* Advice by the newest entry that the driver has.
 * SPDX-License-Identifier: Apache-2.0 */
#include "advice.h"

#include <errno.h>
#include <time.h>

#include "capture.h"
#include "core_clock.h"
#include "loader.h"

#define LONGEST_NS UINT64_C(10000000000)
#define PAUSE_NS 50000

CUmemLocation aq_place_of(CUdevice device) {
  if (device == CU_DEVICE_CPU) return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
  return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

static bool advise(CUdeviceptr address, uint64_t bytes, int advice, CUdevice device) {
  if (AQ_CUDA(cuMemAdvise_v2)) return !AQ_CUDA(cuMemAdvise_v2)(address, bytes, advice, aq_place_of(device));
  return AQ_CUDA(cuMemAdvise) && !AQ_CUDA(cuMemAdvise)(address, bytes, advice, device);
}

bool aq_advise_host(CUdeviceptr address, uint64_t bytes, CUdevice device) {
  return advise(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU) &&
         advise(address, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, device);
}

bool aq_advise_nowhere(CUdeviceptr address, uint64_t bytes, CUdevice device) {
  return advise(address, bytes, CU_MEM_ADVISE_UNSET_ACCESSED_BY, device) &&
         advise(address, bytes, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, device);
}

/* A stream that waits for something of the program's may share the card's queue with ours. */
static bool is_soon_over(CUstream stream) {
  const struct timespec moment = {.tv_nsec = PAUSE_NS};
  uint64_t until = aq_now_ns() + LONGEST_NS;
  int saved = errno;
  CUresult found = AQ_CUDA(cuStreamQuery)(stream);
  for (; found == CUDA_ERROR_NOT_READY && aq_now_ns() < until; found = AQ_CUDA(cuStreamQuery)(stream)) nanosleep(&moment, NULL);
  errno = saved;
  return found == CUDA_SUCCESS;
}

static bool prefetch_to_host(CUdeviceptr address, uint64_t bytes, CUstream stream) {
  if (AQ_CUDA(cuMemPrefetchAsync_v2))
    return !AQ_CUDA(cuMemPrefetchAsync_v2)(address, bytes, aq_place_of(CU_DEVICE_CPU), 0, stream);
  return AQ_CUDA(cuMemPrefetchAsync) && !AQ_CUDA(cuMemPrefetchAsync)(address, bytes, CU_DEVICE_CPU, stream);
}

/* In a stream of its own: in the program's it would come behind work that may use the range for a long time. */
static bool bring(CUdeviceptr address, uint64_t bytes) {
  CUstream stream;
  bool able = AQ_CUDA(cuStreamCreate) && AQ_CUDA(cuStreamQuery) && AQ_CUDA(cuStreamDestroy_v2);
  if (!able || AQ_CUDA(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING)) return false;
  bool there = advise(address, bytes, CU_MEM_ADVISE_UNSET_READ_MOSTLY, CU_DEVICE_CPU) &&
               prefetch_to_host(address, bytes, stream) && is_soon_over(stream);
  AQ_CUDA(cuStreamDestroy_v2)(stream);
  return there;
}

bool aq_bring_to_host(CUdeviceptr address, uint64_t bytes) {
  int mode = aq_captures_relax();
  bool there = bring(address, bytes);
  aq_captures_restore(mode);
  return there;
}
