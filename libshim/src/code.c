/* Modules and libraries. What their code and variables take is estimated: what the driver says is free before and after a
 * load, less what the tenant was charged meanwhile, but no more than the image tells. The same again when something is first
 * asked of them in a context, because code is loaded lazily. What a neighbour allocates in that moment looks like code, so the
 * charge is marked as an estimate, which the agent corrects (estimate.h).
 * SPDX-License-Identifier: Apache-2.0 */
#include "code_image.h"
#include "estimate.h"
#include "lock.h"
#include "overhead.h"

#define MOST_CONTEXTS 16

/* ---- accounts ----
 * An image: what loading it took; its detail is its bound. Code: what the first use in a context took; its detail is the
 * module or library, its key names the context as well. Both end with the context. */

static CUcontext current_context(void) {
  CUcontext context = NULL;
  if (AQ_CUDA(cuCtxGetCurrent)) AQ_CUDA(cuCtxGetCurrent)(&context);
  return context;
}

static uint64_t code_key(const void *handle, CUcontext context) {
  return (uintptr_t)handle ^ (uint64_t)(uintptr_t)context << 16 ^ (uint64_t)(uintptr_t)context >> 48;
}

/* What the image may need beyond what its load was charged. */
static uint64_t bound_of(const void *handle) {
  aq_block image;
  if (!aq_blocks_get(AQ_BLOCK_IMAGE, (uintptr_t)handle, &image)) return AQ_IMAGE_UNSEEN;
  uint64_t most = (uintptr_t)image.detail, charged = image.charge.card == AQ_NO_CARD ? 0 : image.charge.bytes;
  return most > charged ? most - charged : 0;
}

/* Over looking at the tenant's account and charging by it: of two threads that load at once, the later sees what the earlier
 * was charged. */
static aq_lock charging;

/* Charges what was taken since `before`. False: it does not fit at once; `taken` says how much it is. */
static bool charge(const aq_gauge *before, uint64_t most, aq_charge *charge, uint64_t *taken) {
  aq_gauge now = before->known ? aq_gauge_read(before->device) : *before;
  if (!now.known) return true;
  aq_lock_acquire(&charging);
  aq_gauge_update(&now);
  *taken = aq_gauge_drop(before, &now, most);
  bool fits = !*taken || aq_quota_take(before->device, *taken, charge);
  aq_lock_release(&charging);
  return fits;
}

/* Charges what was taken since `before` and remembers it. False: it does not fit. */
static bool keep(const aq_gauge *before, uint64_t most, aq_block *block) {
  uint64_t taken = 0;
  block->charge = (aq_charge){.card = AQ_NO_CARD};
  bool fits = charge(before, most, &block->charge, &taken) || aq_memory_take(before->device, taken, &block->charge);
  aq_estimate_add(&block->charge);
  block->context = current_context();
  if (!aq_blocks_put(block)) aq_blocks_give(block);
  return fits;
}

/* ---- loading ---- */

static bool keep_image(const aq_gauge *before, uint64_t most, const void *handle) {
  return keep(before, most, &(aq_block){.key = (uintptr_t)handle, .kind = AQ_BLOCK_IMAGE, .detail = (void *)(uintptr_t)most});
}

static aq_gauge begin(void) {
  return aq_tenant_mode() == AQ_GUARD ? aq_gauge_read(AQ_ANY_DEVICE) : (aq_gauge){.known = false};
}

static void forget(const void *handle);

#define LOAD(symbol, unload, most, handle, ...)                                                      \
  do {                                                                                               \
    if (!AQ_CUDA(symbol)) return CUDA_ERROR_NOT_FOUND;                                               \
    aq_gauge before = begin();                                                                       \
    CUresult result = AQ_CUDA(symbol)(handle, __VA_ARGS__);                                          \
    if (result != CUDA_SUCCESS || aq_tenant_mode() != AQ_GUARD) return result;                       \
    if (keep_image(&before, most, *handle)) return result;                                           \
    forget(*handle);                                                                                 \
    AQ_CUDA(unload)(*handle);                                                                        \
    return CUDA_ERROR_OUT_OF_MEMORY;                                                                 \
  } while (0)

CUresult cuModuleLoad(CUmodule *module, const char *path) {
  LOAD(cuModuleLoad, cuModuleUnload, aq_image_bound_of_file(path), module, path);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  LOAD(cuModuleLoadData, cuModuleUnload, aq_image_bound(image), module, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, int *options, void **values) {
  LOAD(cuModuleLoadDataEx, cuModuleUnload, aq_image_bound(image), module, image, count, options, values);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
  LOAD(cuModuleLoadFatBinary, cuModuleUnload, aq_image_bound(image), module, image);
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, int *options, void **values, unsigned int count,
                           int *library_options, void **library_values, unsigned int library_count) {
  LOAD(cuLibraryLoadData, cuLibraryUnload, aq_image_bound(image), library, image, options, values, count, library_options,
       library_values, library_count);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, int *options, void **values, unsigned int count,
                               int *library_options, void **library_values, unsigned int library_count) {
  LOAD(cuLibraryLoadFromFile, cuLibraryUnload, aq_image_bound_of_file(path), library, path, options, values, count,
       library_options, library_values, library_count);
}

/* ---- first use ---- */

typedef struct {
  const void *handle;
  uint64_t key;
  aq_gauge before;
} use;

static use first_use(const void *handle) {
  use u = {.handle = handle};
  aq_block seen;
  if (aq_tenant_mode() != AQ_GUARD || !handle) return u;
  u.key = code_key(handle, current_context());
  if (!aq_blocks_get(AQ_BLOCK_CODE, u.key, &seen)) u.before = aq_gauge_read(AQ_ANY_DEVICE);
  return u;
}

/* The code stays where it is even if it does not fit: it cannot be unloaded under the program's handle. */
static CUresult used(const use *u, CUresult result) {
  if (result != CUDA_SUCCESS || !u->before.known) return result;
  aq_block code = {.key = u->key, .kind = AQ_BLOCK_CODE, .detail = (void *)u->handle};
  return keep(&u->before, bound_of(u->handle), &code) ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

#define USE(symbol, code, ...)                         \
  do {                                                 \
    if (!AQ_CUDA(symbol)) return CUDA_ERROR_NOT_FOUND; \
    use u = first_use(code);                           \
    return used(&u, AQ_CUDA(symbol)(__VA_ARGS__));     \
  } while (0)

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  USE(cuModuleGetFunction, module, function, module, name);
}

CUresult cuModuleGetGlobal(CUdeviceptr_v1 *dptr, unsigned int *bytes, CUmodule module, const char *name) {
  USE(cuModuleGetGlobal, module, dptr, bytes, module, name);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule module, const char *name) {
  USE(cuModuleGetGlobal_v2, module, dptr, bytes, module, name);
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) { USE(cuLibraryGetModule, library, module, library); }

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name) {
  USE(cuLibraryGetGlobal, library, dptr, bytes, library, name);
}

CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name) {
  USE(cuLibraryGetManaged, library, dptr, bytes, library, name);
}

/* What a kernel belongs to; where the driver cannot tell, the kernel stands for itself. */
static const void *library_of(CUkernel kernel) {
  CUlibrary library;
  if (!AQ_CUDA(cuKernelGetLibrary) || AQ_CUDA(cuKernelGetLibrary)(&library, kernel)) return kernel;
  return library;
}

static const void *module_of(CUfunction function) {
  CUmodule module;
  if (!AQ_CUDA(cuFuncGetModule) || AQ_CUDA(cuFuncGetModule)(&module, function)) return function;
  return module;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
  USE(cuKernelGetFunction, library_of(kernel), function, kernel);
}

CUresult cuFuncLoad(CUfunction function) { USE(cuFuncLoad, module_of(function), function); }

/* ---- unloading ---- */

typedef struct {
  const void *handle;
  aq_block block;
  bool found;
} search;

static bool is_code_of(const aq_block *block, void *data) {
  search *s = data;
  s->found = block->detail == s->handle;
  if (s->found) s->block = *block;
  return !s->found;
}

/* Takes the blocks of a module or library out, before the driver may give its handle to another. */
static unsigned take_out(const void *handle, aq_block *blocks) {
  unsigned count = 0;
  search s = {.handle = handle};
  if (aq_blocks_take(AQ_BLOCK_IMAGE, (uintptr_t)handle, &blocks[0])) count++;
  do {
    s.found = false;
    aq_blocks_each(AQ_BLOCK_CODE, is_code_of, &s);
    if (s.found && aq_blocks_take(AQ_BLOCK_CODE, s.block.key, &blocks[count])) count++;
  } while (s.found && count < MOST_CONTEXTS);
  return count;
}

static void give(const aq_block *blocks, unsigned count) {
  for (unsigned i = 0; i < count; i++) aq_blocks_give(&blocks[i]);
}

static void forget(const void *handle) {
  aq_block blocks[MOST_CONTEXTS];
  give(blocks, take_out(handle, blocks));
}

static CUresult unloaded(CUresult result, const aq_block *blocks, unsigned count) {
  if (result == CUDA_SUCCESS) give(blocks, count);
  for (unsigned i = 0; result != CUDA_SUCCESS && i < count; i++) aq_blocks_put(&blocks[i]);
  return result;
}

#define UNLOAD(symbol, handle)                                                       \
  do {                                                                               \
    aq_block blocks[MOST_CONTEXTS];                                                  \
    if (!AQ_CUDA(symbol)) return CUDA_ERROR_NOT_FOUND;                               \
    unsigned count = aq_tenant_mode() == AQ_GUARD ? take_out(handle, blocks) : 0;    \
    return unloaded(AQ_CUDA(symbol)(handle), blocks, count);                         \
  } while (0)

CUresult cuModuleUnload(CUmodule module) { UNLOAD(cuModuleUnload, module); }
CUresult cuLibraryUnload(CUlibrary library) { UNLOAD(cuLibraryUnload, library); }

void aq_code_forget(void) { aq_lock_reset(&charging); }
