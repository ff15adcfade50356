/* The driver's functions that the chaos client calls, as pointers of the same names.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef DRIVER_H
#define DRIVER_H

#include <stddef.h>
#include <stdint.h>

enum { SUCCESS = 0, OUT_OF_MEMORY = 2 };

typedef struct {
  int type, handle_types, location_type, device;
  uint64_t rest[9]; /* of CUmemPoolProps; CUmemAllocationProp is shorter */
} place;

typedef struct {
  int location_type, device, flags;
} access_to;

typedef struct {
  size_t width, height, depth;
  int format;
  unsigned channels, flags;
} array_wanted;

typedef struct {
  place from;
  const access_to *access;
  size_t access_count, bytes;
  uint64_t address;
} node_wanted;

typedef struct {
  char bytes[64];
} ipc_name;

#define DRIVER(X)                                                                                                       \
  X(cuInit, (unsigned))                                                                                                 \
  X(cuDevicePrimaryCtxRetain, (void **, int))                                                                           \
  X(cuDevicePrimaryCtxRelease_v2, (int))                                                                                \
  X(cuCtxCreate_v2, (void **, unsigned, int))                                                                           \
  X(cuCtxCreate_v4, (void **, void *, unsigned, int))                                                                   \
  X(cuCtxDestroy_v2, (void *))                                                                                          \
  X(cuCtxSetCurrent, (void *))                                                                                          \
  X(cuCtxPopCurrent_v2, (void **))                                                                                      \
  X(cuCtxSetLimit, (int, size_t))                                                                                       \
  X(cuCtxGetLimit, (size_t *, int))                                                                                     \
  X(cuCtxSynchronize, (void))                                                                                           \
  X(cuDeviceGetDevResource, (int, void *, int))                                                                         \
  X(cuDevResourceGenerateDesc, (void **, const void *, unsigned))                                                       \
  X(cuGreenCtxCreate, (void **, void *, int, unsigned))                                                                 \
  X(cuGreenCtxStreamCreate, (uint64_t *, void *, unsigned, int))                                                        \
  X(cuGreenCtxDestroy, (void *))                                                                                        \
  X(cuModuleLoadData, (void **, const void *))                                                                          \
  X(cuModuleGetFunction, (void **, void *, const char *))                                                               \
  X(cuModuleUnload, (void *))                                                                                           \
  X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, uint64_t, void **, void **)) \
  X(cuMemGetInfo_v2, (size_t *, size_t *))                                                                              \
  X(cuMemAlloc_v2, (uint64_t *, size_t))                                                                                \
  X(cuMemAllocPitch_v2, (uint64_t *, size_t *, size_t, size_t, unsigned))                                               \
  X(cuMemAllocManaged, (uint64_t *, size_t, unsigned))                                                                  \
  X(cuMemPrefetchAsync, (uint64_t, size_t, int, uint64_t))                                                              \
  X(cuMemAdvise, (uint64_t, size_t, int, int))                                                                          \
  X(cuMemFree_v2, (uint64_t))                                                                                           \
  X(cuMemAllocAsync, (uint64_t *, size_t, uint64_t))                                                                    \
  X(cuMemAllocFromPoolAsync, (uint64_t *, size_t, uint64_t, uint64_t))                                                  \
  X(cuMemFreeAsync, (uint64_t, uint64_t))                                                                               \
  X(cuMemPoolCreate, (uint64_t *, const place *))                                                                       \
  X(cuMemPoolDestroy, (uint64_t))                                                                                       \
  X(cuMemPoolTrimTo, (uint64_t, size_t))                                                                                \
  X(cuMemPoolSetAttribute, (uint64_t, int, void *))                                                                     \
  X(cuDeviceGetDefaultMemPool, (uint64_t *, int))                                                                       \
  X(cuDeviceGraphMemTrim, (int))                                                                                        \
  X(cuMemCreate, (uint64_t *, size_t, const place *, uint64_t))                                                         \
  X(cuMemRelease, (uint64_t))                                                                                           \
  X(cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, uint64_t))                                              \
  X(cuMemAddressFree, (uint64_t, size_t))                                                                               \
  X(cuMemMap, (uint64_t, size_t, size_t, uint64_t, uint64_t))                                                           \
  X(cuMemUnmap, (uint64_t, size_t))                                                                                     \
  X(cuMemSetAccess, (uint64_t, size_t, const access_to *, size_t))                                                      \
  X(cuMemRetainAllocationHandle, (uint64_t *, uint64_t))                                                                \
  X(cuMemExportToShareableHandle, (void *, uint64_t, int, uint64_t))                                                    \
  X(cuMemImportFromShareableHandle, (uint64_t *, void *, int))                                                          \
  X(cuIpcGetMemHandle, (ipc_name *, uint64_t))                                                                          \
  X(cuIpcOpenMemHandle_v2, (uint64_t *, ipc_name, unsigned))                                                            \
  X(cuIpcCloseMemHandle, (uint64_t))                                                                                    \
  X(cuArray3DCreate_v2, (uint64_t *, const array_wanted *))                                                             \
  X(cuArrayDestroy, (uint64_t))                                                                                         \
  X(cuMipmappedArrayCreate, (uint64_t *, const array_wanted *, unsigned))                                               \
  X(cuMipmappedArrayDestroy, (uint64_t))                                                                                \
  X(cuStreamCreate, (uint64_t *, unsigned))                                                                             \
  X(cuStreamDestroy_v2, (uint64_t))                                                                                     \
  X(cuStreamSynchronize, (uint64_t))                                                                                    \
  X(cuStreamBeginCapture_v2, (uint64_t, int))                                                                           \
  X(cuStreamEndCapture, (uint64_t, uint64_t *))                                                                         \
  X(cuGraphCreate, (uint64_t *, unsigned))                                                                              \
  X(cuGraphAddMemAllocNode, (void **, uint64_t, void **, size_t, node_wanted *))                                        \
  X(cuGraphAddMemFreeNode, (void **, uint64_t, void **, size_t, uint64_t))                                              \
  X(cuGraphInstantiateWithFlags, (uint64_t *, uint64_t, uint64_t))                                                      \
  X(cuGraphUpload, (uint64_t, uint64_t))                                                                                \
  X(cuGraphLaunch, (uint64_t, uint64_t))                                                                                \
  X(cuGraphExecDestroy, (uint64_t))                                                                                     \
  X(cuGraphDestroy, (uint64_t))

#define DECLARE(name, parameters) extern int(*name) parameters;
DRIVER(DECLARE)
#undef DECLARE

#endif
