/* What holds physical memory besides handles and mappings: bindings to multicast objects and logical endpoints, and tiles of
 * sparse arrays.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_BINDING_H
#define AQ_BINDING_H

#include "physical.h"

typedef enum { AQ_BOUND_TO_MULTICAST, AQ_BOUND_TO_ENDPOINT, AQ_BOUND_TO_ARRAY } aq_bound_to;

/* Where in its holder something is bound. A tile's place is all in `offset`. */
typedef struct {
  aq_bound_to kind;
  uint64_t holder; /* an aq_physical, a CUlogicalEndpointId, an array or mipmap */
  CUdevice device;
  uint64_t offset, bytes;
} aq_place;

/* Binds: the caller's reference is the binding's. False: it cannot be remembered; the reference is still the caller's. */
bool aq_bind(const aq_place *place, aq_physical *physical);

/* What is bound on the device in the range is bound no longer. */
void aq_unbind(const aq_place *range);

/* The holder is gone, and all that was bound to it with it. */
void aq_bindings_end(aq_bound_to kind, uint64_t holder);

/* In the child of a fork. */
void aq_bindings_forget(void);

#endif
