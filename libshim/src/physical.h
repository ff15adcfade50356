/* Accounts of physical memory, which lives until every handle of it was released and it is mapped and bound nowhere.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_PHYSICAL_H
#define AQ_PHYSICAL_H

#include "memory.h"
#include "sharing.h"

#define AQ_ON_HOST (-1) /* a device of memory that costs nothing */

/* One allocation, or one multicast object, which costs nothing itself but holds what is bound to it. */
typedef struct aq_physical aq_physical;

/* An account with one reference, the caller's. NULL: the process has no memory left. */
aq_physical *aq_physical_new(CUdevice device, const aq_charge *charge);

/* Memory that another process has made, of this tenant or of none we know; and a multicast object. */
aq_physical *aq_physical_imported(CUdevice device, aq_share origin);

/* A reference fewer. The last one gives the charge back, unless another process of the tenant still has the memory. */
void aq_physical_drop(aq_physical *physical);

/* A new reference to what a handle names, or what is mapped at an address; NULL when neither is known. */
aq_physical *aq_physical_of_handle(CUmemGenericAllocationHandle handle);
aq_physical *aq_physical_at(CUdeviceptr address);

/* A handle given out: it has the caller's reference from now on. False: it cannot be remembered. */
bool aq_physical_add_handle(CUmemGenericAllocationHandle handle, aq_physical *physical);

/* A handle given out once less: the caller has its reference again. NULL: the handle is not known. */
aq_physical *aq_physical_take_handle(CUmemGenericAllocationHandle handle);

/* Before `bytes` from its start are used: imported memory of nobody we know is charged as far as it is seen to reach, since
 * no driver tells its size. False: that does not fit. */
bool aq_physical_reach(aq_physical *physical, uint64_t bytes);

CUdevice aq_physical_device(const aq_physical *physical);

/* Names the memory for other processes: the share that they open. */
aq_share aq_physical_share(aq_physical *physical);
/* The word under which it was published for them. */
void aq_physical_published(aq_physical *physical, uint64_t word);

/* Gives back what other processes have closed meanwhile. True: there was something. */
bool aq_physical_settle(void);

/* In the child of a fork. */
void aq_physical_forget(void);

#endif
