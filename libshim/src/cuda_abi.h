/* The few CUDA driver types that our hooks see, declared by their binary layout. Handles stay opaque.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_CUDA_ABI_H
#define AQ_CUDA_ABI_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned int CUdeviceptr_v1;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUfunc_st *CUfunction;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
};

/* Flags of cuGetProcAddress. */
enum { CU_GET_PROC_ADDRESS_LEGACY_STREAM = 1, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2 };

enum { CU_STREAM_CAPTURE_STATUS_NONE = 0 };
enum { CU_STREAM_CAPTURE_MODE_RELAXED = 2 };

/* The calling thread's own default stream, as a handle. */
#define CU_STREAM_PER_THREAD ((CUstream)2)

typedef struct {
  unsigned int grid[3], block[3], shared;
  CUstream stream;
  void *attributes;
  unsigned int attribute_count;
} CUlaunchConfig;

typedef struct {
  CUfunction function;
  unsigned int grid[3], block[3], shared;
  CUstream stream;
  void **params;
} CUDA_LAUNCH_PARAMS;

typedef struct {
  char bytes[16];
} CUuuid;

typedef struct {
  unsigned int Width, Height;
  int Format;
  unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR_v1;

typedef struct {
  size_t Width, Height;
  int Format;
  unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
  unsigned int Width, Height, Depth;
  int Format;
  unsigned int NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR_v1;

typedef struct {
  size_t Width, Height, Depth;
  int Format;
  unsigned int NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

enum { CUDA_ARRAY3D_LAYERED = 0x01, CUDA_ARRAY3D_CUBEMAP = 0x04, CUDA_ARRAY3D_SPARSE = 0x40, CUDA_ARRAY3D_DEFERRED_MAPPING = 0x80 };

enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 };

typedef struct {
  int type;
  int id;
} CUmemLocation;

typedef struct {
  int type;
  int requestedHandleTypes;
  CUmemLocation location;
  void *win32HandleMetaData;
  unsigned char allocFlags[8];
} CUmemAllocationProp;

typedef struct {
  int allocType;
  int handleTypes;
  CUmemLocation location;
  void *win32SecurityAttributes;
  size_t maxSize;
  unsigned char reserved[56];
} CUmemPoolProps;

/* Attributes of a pool. */
enum {
  CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
  CU_MEMPOOL_ATTR_LOCATION_ID = 11,
  CU_MEMPOOL_ATTR_LOCATION_TYPE = 12,
};

static_assert(sizeof(CUlaunchConfig) == 56, "driver ABI");
static_assert(offsetof(CUlaunchConfig, stream) == 32, "driver ABI");
static_assert(sizeof(CUDA_LAUNCH_PARAMS) == 56, "driver ABI");
static_assert(sizeof(CUmemAllocationProp) == 32, "driver ABI");
static_assert(sizeof(CUmemPoolProps) == 88, "driver ABI");
static_assert(sizeof(CUDA_ARRAY_DESCRIPTOR) == 24, "driver ABI");
static_assert(sizeof(CUDA_ARRAY3D_DESCRIPTOR) == 40, "driver ABI");

#endif
