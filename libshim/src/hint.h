/* A hint about where managed memory shall be, as the program gave it: a prefetch or advice.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_HINT_H
#define AQ_HINT_H

#include "cuda_abi.h"

#define AQ_PREFETCH 0 /* in place of an advice */

typedef struct aq_hint aq_hint;

struct aq_hint {
  CUdeviceptr address;
  size_t bytes;
  int advice;       /* CU_MEM_ADVISE_…, or AQ_PREFETCH */
  CUmemLocation to; /* where the range shall be, or who accesses it */
  CUresult (*pass)(const aq_hint *hint, CUdeviceptr address, size_t bytes); /* gives the driver a part of it */
  CUstream stream; /* of a prefetch; by the name that its flavour of the default stream has (aq_stream_named) */
  unsigned long long flags;
};

#endif
