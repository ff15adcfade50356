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
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUfunc_st *CUfunction;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef uint32_t CUlogicalEndpointId;
typedef struct CUextMemory_st *CUexternalMemory;
typedef struct CUextSemaphore_st *CUextSemaphore;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_NOT_SUPPORTED = 801,
};

/* Flags of cuGetProcAddress. */
enum { CU_GET_PROC_ADDRESS_LEGACY_STREAM = 1, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2 };

enum { CU_STREAM_CAPTURE_STATUS_NONE = 0 };
enum { CU_EVENT_DISABLE_TIMING = 2 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_STREAM_CAPTURE_MODE_RELAXED = 2 };

/* What a context limits. */
enum {
  CU_LIMIT_STACK_SIZE,
  CU_LIMIT_PRINTF_FIFO_SIZE,
  CU_LIMIT_MALLOC_HEAP_SIZE,
  CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH,
  CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT,
};

enum { CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39 };

/* The calling thread's own default stream, as a handle. */
#define CU_STREAM_LEGACY ((CUstream)1)
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

/* The ends of a copy are told as of their kinds only what the layout needs. */
typedef struct {
  size_t x, y;
  int type;
  void *host;
  CUdeviceptr device;
  CUarray array;
  size_t pitch;
} aq_end_2d;

typedef struct {
  aq_end_2d source, target;
  size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct {
  unsigned int source_x, source_y;
  int source_type;
  void *source_host;
  CUdeviceptr_v1 source_device;
  CUarray source_array;
  unsigned int source_pitch;
  unsigned int target_x, target_y;
  int target_type;
  void *target_host;
  CUdeviceptr_v1 target_device;
  CUarray target_array;
  unsigned int target_pitch;
  unsigned int WidthInBytes, Height;
} CUDA_MEMCPY2D_v1;

typedef struct {
  size_t x, y, z, level;
  int type;
  void *host;
  CUdeviceptr device;
  CUarray array;
  void *context; /* of a copy between peers */
  size_t pitch, height;
} aq_end_3d;

typedef struct {
  aq_end_3d source, target;
  size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

typedef CUDA_MEMCPY3D CUDA_MEMCPY3D_PEER;

typedef struct {
  unsigned int source_x, source_y, source_z, source_level;
  int source_type;
  void *source_host;
  CUdeviceptr_v1 source_device;
  CUarray source_array;
  void *source_reserved;
  unsigned int source_pitch, source_height;
  unsigned int target_x, target_y, target_z, target_level;
  int target_type;
  void *target_host;
  CUdeviceptr_v1 target_device;
  CUarray target_array;
  void *target_reserved;
  unsigned int target_pitch, target_height;
  unsigned int WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D_v1;

typedef struct {
  uint64_t source[5], target[5]; /* operands */
  size_t width, height, depth;
  int order;
  unsigned int flags;
} CUDA_MEMCPY3D_BATCH_OP;

typedef struct {
  size_t srcNumBytes, dstNumBytes;
  uint32_t *dstActBytes;
  const void *src;
  void *dst;
  int algo;
  unsigned char padding[20];
} CUmemDecompressParams;

static_assert(sizeof(CUDA_MEMCPY2D) == 128 && sizeof(CUDA_MEMCPY2D_v1) == 96, "CUDA's layout");
static_assert(sizeof(CUDA_MEMCPY3D) == 200 && sizeof(CUDA_MEMCPY3D_v1) == 144, "CUDA's layout");
static_assert(sizeof(CUDA_MEMCPY3D_BATCH_OP) == 112 && sizeof(CUmemDecompressParams) == 64, "CUDA's layout");

enum { CUDA_ARRAY3D_LAYERED = 0x01, CUDA_ARRAY3D_CUBEMAP = 0x04, CUDA_ARRAY3D_SPARSE = 0x40, CUDA_ARRAY3D_DEFERRED_MAPPING = 0x80 };

enum {
  CU_MEM_LOCATION_TYPE_DEVICE = 1,
  CU_MEM_LOCATION_TYPE_HOST = 2,
  CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT = 4,
  CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN = 6,
};
enum { CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0 };
enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1, CU_MEM_ALLOCATION_TYPE_MANAGED = 2 };

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

/* How memory is named for other processes. */
enum { CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1, CU_MEM_HANDLE_TYPE_FABRIC = 8 };
enum { CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD = 1 };

typedef struct {
  char bytes[64];
} CUipcMemHandle;

typedef struct {
  int type;
  union {
    int fd;
    void *words[2];
  } handle;
  uint64_t size;
  unsigned int flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;

/* A tile of a sparse array, and the memory to be put there. */
enum { CU_MEM_OPERATION_TYPE_MAP = 1 };

typedef struct {
  int resourceType;
  void *resource;
  int subresourceType;
  uint64_t subresource[4];
  int memOperationType, memHandleType;
  CUmemGenericAllocationHandle memHandle;
  uint64_t offset;
  unsigned int deviceBitMask, flags, reserved[2];
} CUarrayMapInfo;

typedef struct {
  size_t size, alignment;
  unsigned int reserved[4];
} CUDA_ARRAY_MEMORY_REQUIREMENTS;

/* Attributes of a pool. */
enum {
  CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
  CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
  CU_MEMPOOL_ATTR_ALLOCATION_TYPE = 9,
  CU_MEMPOOL_ATTR_LOCATION_ID = 11,
  CU_MEMPOOL_ATTR_LOCATION_TYPE = 12,
};

/* Attributes of what a device holds for graphs. */
enum { CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT = 0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2 };

enum { CU_GRAPH_NODE_TYPE_GRAPH = 4, CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10, CU_GRAPH_NODE_TYPE_MEM_FREE = 11 };
enum { CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD = 2, CUDA_GRAPH_INSTANTIATE_ERROR = 1 };

typedef struct {
  CUmemPoolProps props;
  const void *access;
  size_t access_count, bytes;
  CUdeviceptr address;
} CUDA_MEM_ALLOC_NODE_PARAMS;

typedef struct {
  int type, reserved[3];
  union {
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    char bytes[232];
  } of;
  long long reserved_end;
} CUgraphNodeParams;

typedef struct {
  uint64_t flags;
  CUstream upload;
  CUgraphNode error;
  int result;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

enum { CU_MEM_ATTACH_GLOBAL = 1 };
enum {
  CU_MEM_ADVISE_UNSET_READ_MOSTLY = 2,
  CU_MEM_ADVISE_SET_PREFERRED_LOCATION = 3,
  CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION = 4,
  CU_MEM_ADVISE_SET_ACCESSED_BY = 5,
  CU_MEM_ADVISE_UNSET_ACCESSED_BY = 6,
};
enum {
  CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
  CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
};

/* The host, where a device is named. */
#define CU_DEVICE_CPU ((CUdevice)-1)

static_assert(sizeof(CUDA_MEM_ALLOC_NODE_PARAMS) == 120, "driver ABI");
static_assert(sizeof(CUgraphNodeParams) == 256, "driver ABI");
static_assert(sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS) == 32, "driver ABI");
static_assert(sizeof(CUlaunchConfig) == 56, "driver ABI");
static_assert(offsetof(CUlaunchConfig, stream) == 32, "driver ABI");
static_assert(sizeof(CUDA_LAUNCH_PARAMS) == 56, "driver ABI");
static_assert(sizeof(CUmemAllocationProp) == 32, "driver ABI");
static_assert(sizeof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC) == 104, "driver ABI");
static_assert(sizeof(CUarrayMapInfo) == 96, "driver ABI");
static_assert(offsetof(CUarrayMapInfo, memHandle) == 64, "driver ABI");
static_assert(sizeof(CUmemPoolProps) == 88, "driver ABI");
static_assert(sizeof(CUDA_ARRAY_DESCRIPTOR) == 24, "driver ABI");
static_assert(sizeof(CUDA_ARRAY3D_DESCRIPTOR) == 40, "driver ABI");

#endif
