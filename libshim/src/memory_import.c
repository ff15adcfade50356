/* Memory that crosses processes: shareable handles, legacy IPC, and what other APIs have allocated. Whose it is, sharing.h
 * tells; what a stranger has made is charged here, because it lives on here when the stranger has ended.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "location.h"
#include "lock.h"
#include "physical.h"

static bool guarded(void) { return aq_tenant_mode() == AQ_GUARD; }

/* ---- shareable handles ---- */

/* Writes into what is passed on whose memory it is. */
static void name(const void *shareable, int type, aq_physical *physical) {
  aq_share share = aq_physical_share(physical);
  if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) aq_share_tag_file(*(const int *)shareable, share);
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) aq_physical_published(physical, aq_share_publish(shareable, share));
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, int type,
                                      unsigned long long flags) {
  if (!AQ_CUDA(cuMemExportToShareableHandle)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuMemExportToShareableHandle)(shareable, handle, type, flags);
  aq_physical *physical = result == CUDA_SUCCESS && guarded() ? aq_physical_of_handle(handle) : NULL;
  if (!physical) return result;
  name(shareable, type, physical);
  aq_physical_drop(physical);
  return result;
}

/* A file is passed by value, in the place of the pointer. */
static aq_share origin_of(const void *shareable, int type) {
  if (!guarded()) return AQ_NO_SHARE;
  if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return aq_share_of_file((int)(intptr_t)shareable);
  return type == CU_MEM_HANDLE_TYPE_FABRIC && shareable ? aq_share_of_handle(shareable) : AQ_NO_SHARE;
}

/* The device that imported memory lies on; the host's costs nothing. */
static CUdevice device_of(CUmemGenericAllocationHandle handle) {
  CUmemAllocationProp prop;
  CUdevice device = AQ_ON_HOST;
  bool told = AQ_CUDA(cuMemGetAllocationPropertiesFromHandle) &&
              !AQ_CUDA(cuMemGetAllocationPropertiesFromHandle)(&prop, handle);
  if (told && aq_location_is_device(prop.location)) return aq_location_device(prop.location);
  if (!told || !aq_location_is_host(prop.location)) aq_current_device(&device);
  return device;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, int type) {
  if (!AQ_CUDA(cuMemImportFromShareableHandle)) return CUDA_ERROR_NOT_FOUND;
  aq_share origin = origin_of(shareable, type);
  CUresult result = AQ_CUDA(cuMemImportFromShareableHandle)(handle, shareable, type);
  if (result != CUDA_SUCCESS || !guarded()) return result;
  aq_physical *physical = aq_physical_of_handle(*handle); /* ours, back again under its own name */
  if (!physical) physical = aq_physical_imported(device_of(*handle), origin);
  if (physical && aq_physical_add_handle(*handle, physical)) return result;
  AQ_CUDA(cuMemRelease)(*handle);
  if (physical) aq_physical_drop(physical);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- legacy IPC ---- */

typedef struct {
  aq_charge charge; /* a stranger's memory */
  aq_share origin;
  unsigned count;   /* how often it was opened, under `counting` */
} import;

/* A name given to plain memory; its block is an AQ_BLOCK_EXPORT. */
typedef struct {
  aq_charge charge; /* a copy of the memory's */
  aq_share share;
  uint64_t published;
} export;

static aq_lock counting;

bool aq_exports_any; /* relaxed: set before the first name is given out */

/* Names memory that was allocated here. Memory of others is named by whoever has it. */
static void name_block(const CUipcMemHandle *handle, CUdeviceptr dptr) {
  CUdeviceptr base = dptr;
  size_t bytes;
  aq_block memory, named;
  if (AQ_CUDA(cuMemGetAddressRange_v2)) AQ_CUDA(cuMemGetAddressRange_v2)(&base, &bytes, dptr);
  if (aq_blocks_get(AQ_BLOCK_EXPORT, base, &named) || !aq_blocks_get(AQ_BLOCK_MEMORY, base, &memory)) return;
  export *e = malloc(sizeof *e);
  if (!e) return;
  aq_share share = aq_share_export(&memory.charge);
  *e = (export){memory.charge, share, aq_share_publish(handle, share)};
  __atomic_store_n(&aq_exports_any, true, __ATOMIC_RELAXED);
  aq_block block = {.key = base, .charge.card = AQ_NO_CARD, .kind = AQ_BLOCK_EXPORT, .detail = e};
  if (!aq_blocks_put(&block)) free(e);
}

void aq_export_ended(uint64_t key) {
  aq_block block;
  if (!aq_blocks_take(AQ_BLOCK_EXPORT, key, &block)) return;
  export *e = block.detail;
  aq_share_withdraw(e->published);
  aq_share_end(e->share, &e->charge);
  free(e);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr dptr) {
  if (!AQ_CUDA(cuIpcGetMemHandle)) return CUDA_ERROR_NOT_FOUND;
  CUresult result = AQ_CUDA(cuIpcGetMemHandle)(handle, dptr);
  if (result == CUDA_SUCCESS && guarded()) name_block(handle, dptr);
  return result;
}

void aq_imports_forget(void) { aq_lock_reset(&counting); }

/* Counts one more time that memory is open; `false` when it is opened for the first time. */
static bool open_again(CUdeviceptr dptr) {
  aq_block block;
  aq_lock_acquire(&counting);
  bool known = aq_blocks_get(AQ_BLOCK_IMPORT, dptr, &block);
  if (known) ((import *)block.detail)->count++;
  aq_lock_release(&counting);
  return known;
}

/* Charges a stranger's memory, now that its size is known. */
static bool charge_import(import *i, CUdeviceptr dptr) {
  CUdevice device;
  CUdeviceptr base;
  size_t bytes = 0;
  i->charge = (aq_charge){.card = AQ_NO_CARD};
  if (aq_share_is_ours(i->origin) || aq_current_device(&device)) return true;
  if (!AQ_CUDA(cuMemGetAddressRange_v2) || AQ_CUDA(cuMemGetAddressRange_v2)(&base, &bytes, dptr)) return true;
  return aq_memory_take(device, bytes, &i->charge);
}

static void end_import(import *i) {
  aq_share_close(i->origin);
  aq_quota_give(&i->charge);
  free(i);
}

/* Whose it is, as long as they are charged for it. */
static aq_share opened_share(aq_share origin) { return aq_share_open(origin) ? origin : AQ_NO_SHARE; }

static bool keep_import(CUdeviceptr dptr, aq_share origin) {
  if (open_again(dptr)) return true;
  import *i = malloc(sizeof *i);
  if (!i) return false;
  *i = (import){.origin = opened_share(origin), .count = 1};
  aq_block block = {.key = dptr, .charge.card = AQ_NO_CARD, .kind = AQ_BLOCK_IMPORT, .detail = i};
  if (charge_import(i, dptr) && aq_blocks_put(&block)) return true;
  end_import(i);
  return false;
}

static CUresult opened(CUresult result, const CUdeviceptr *dptr, const CUipcMemHandle *handle) {
  if (result != CUDA_SUCCESS || !guarded() || keep_import(*dptr, aq_share_of_handle(handle))) return result;
  AQ_CUDA(cuIpcCloseMemHandle)(*dptr);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *dptr, CUipcMemHandle handle, unsigned int flags) {
  if (!AQ_CUDA(cuIpcOpenMemHandle)) return CUDA_ERROR_NOT_FOUND;
  return opened(AQ_CUDA(cuIpcOpenMemHandle)(dptr, handle, flags), dptr, &handle);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *dptr, CUipcMemHandle handle, unsigned int flags) {
  if (!AQ_CUDA(cuIpcOpenMemHandle_v2)) return CUDA_ERROR_NOT_FOUND;
  return opened(AQ_CUDA(cuIpcOpenMemHandle_v2)(dptr, handle, flags), dptr, &handle);
}

/* One time less; the import when that was the last. */
static import *close_once(CUdeviceptr dptr) {
  aq_block block;
  aq_lock_acquire(&counting);
  import *i = aq_blocks_get(AQ_BLOCK_IMPORT, dptr, &block) ? block.detail : NULL;
  bool last = i && --i->count == 0;
  if (last) aq_blocks_take(AQ_BLOCK_IMPORT, dptr, &block);
  aq_lock_release(&counting);
  return last ? i : NULL;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  if (!AQ_CUDA(cuIpcCloseMemHandle)) return CUDA_ERROR_NOT_FOUND;
  import *last = guarded() ? close_once(dptr) : NULL;
  CUresult result = AQ_CUDA(cuIpcCloseMemHandle)(dptr);
  if (last && result == CUDA_SUCCESS) end_import(last);
  if (last && result != CUDA_SUCCESS) {
    last->count = 1;
    aq_blocks_put(&(aq_block){.key = dptr, .charge.card = AQ_NO_CARD, .kind = AQ_BLOCK_IMPORT, .detail = last});
  }
  return result;
}

/* ---- memory of other APIs ---- */

/* Vulkan's and their like is charged to nobody else. Their files may also be those of our own tenant's CUDA memory. */
static bool take_external(const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *wanted, import *i) {
  CUdevice device;
  bool file = wanted->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  *i = (import){.charge.card = AQ_NO_CARD, .origin = AQ_NO_SHARE, .count = 1};
  if (file) i->origin = opened_share(aq_share_of_file(wanted->handle.fd));
  if (aq_share_is_ours(i->origin) || aq_current_device(&device)) return true;
  return aq_memory_take(device, wanted->size, &i->charge);
}

CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *wanted) {
  if (!AQ_CUDA(cuImportExternalMemory)) return CUDA_ERROR_NOT_FOUND;
  import *i = guarded() && wanted ? malloc(sizeof *i) : NULL;
  if (!i) return AQ_CUDA(cuImportExternalMemory)(memory, wanted);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (take_external(wanted, i)) {
    result = AQ_CUDA(cuImportExternalMemory)(memory, wanted);
    aq_block block = {.charge.card = AQ_NO_CARD, .kind = AQ_BLOCK_EXTERNAL, .detail = i};
    block.key = result == CUDA_SUCCESS ? (uintptr_t)*memory : 0;
    if (result == CUDA_SUCCESS && aq_blocks_put(&block)) return result;
    end_import(i);
    return result;
  }
  free(i);
  return result;
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
  aq_block block;
  if (!AQ_CUDA(cuDestroyExternalMemory)) return CUDA_ERROR_NOT_FOUND;
  bool known = guarded() && aq_blocks_take(AQ_BLOCK_EXTERNAL, (uintptr_t)memory, &block);
  CUresult result = AQ_CUDA(cuDestroyExternalMemory)(memory);
  if (known && result == CUDA_SUCCESS) end_import(block.detail);
  if (known && result != CUDA_SUCCESS) aq_blocks_put(&block);
  return result;
}
