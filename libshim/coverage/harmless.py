"""Functions that the rule of `new_cuda` names although they take, map, free and report no memory and submit no work."""

HARMLESS = {
    "asks, and changes nothing": """
        cuDeviceGetMemPool cuDeviceGetDefaultMemPool cuMemGetDefaultMemPool cuMemGetMemPool
        cuCtxGetCurrent cuCtxPopCurrent cuCtxGetLimit cuCtxGetSharedMemConfig cuModuleGetLoadingMode
        cuKernelGetLibrary cuFuncGetModule cuFuncIsLoaded cuMemHostGetFlags
        cuMemGetAccess cuMemPoolGetAccess cuMipmappedArrayGetSparseProperties cuArrayGetPlane
        cuMipmappedArrayGetLevel cuStreamGetCtx cuStreamGetCtx_v2 cuOccupancyAvailableDynamicSMemPerBlock
        cuTexRefGetAddress cuTexRefGetArray cuTexRefGetMipmappedArray cuTexRefGetMipmapFilterMode
        cuTexRefGetMipmapLevelBias cuTexRefGetMipmapLevelClamp cuSurfRefGetArray
        cuGraphicsSubResourceGetMappedArray cuGraphicsResourceGetMappedMipmappedArray
        cuGraphicsResourceGetMappedPointer cuGraphicsResourceGetMappedEglFrame
        cuCheckpointProcessGetRestoreThreadId cuLogicalEndpointGetLimits cuGraphMemcpyNodeGetParams
        cuGraphMemsetNodeGetParams cuGraphExternalSemaphoresSignalNodeGetParams
        cuGraphBatchMemOpNodeGetParams cuGraphExternalSemaphoresWaitNodeGetParams
        cuGraphMemAllocNodeGetParams cuGraphMemFreeNodeGetParams cuStreamGetGreenCtx""",
    "sets how something works, not how much memory it has": """
        cuCtxSetSharedMemConfig cuFuncSetSharedMemConfig cuCtxResetPersistingL2Cache cuMemPoolSetAccess
        cuDeviceSetGraphMemAttribute cuGraphicsResourceSetMapFlags cuGLSetBufferObjectMapFlags
        cuTensorMapSetAllocationClass""",
    "names memory for another process, which is charged where it was taken": """
        cuMemPoolExportToShareableHandle
        cuMemPoolExportPointer cuMemGetHandleForAddressRange""",
    "events and semaphores hold no memory that counts, and are no work": """
        cuEventCreate cuEventDestroy cuIpcOpenEventHandle cuEventCreateFromEGLSync
        cuImportExternalSemaphore cuSignalExternalSemaphoresAsync cuWaitExternalSemaphoresAsync
        cuDestroyExternalSemaphore""",
    "describes work; launching the graph is the work": """
        cuGraphCreate cuGraphAddKernelNode cuGraphAddMemcpyNode cuGraphAddMemsetNode cuGraphAddHostNode
        cuGraphAddEmptyNode cuGraphAddEventRecordNode cuGraphAddEventWaitNode
        cuGraphAddExternalSemaphoresSignalNode cuGraphAddExternalSemaphoresWaitNode
        cuGraphAddBatchMemOpNode cuGraphMemcpyNodeSetParams cuGraphMemsetNodeSetParams
        cuGraphExternalSemaphoresSignalNodeSetParams cuGraphExternalSemaphoresWaitNodeSetParams
        cuGraphBatchMemOpNodeSetParams cuGraphExecBatchMemOpNodeSetParams cuGraphExecMemcpyNodeSetParams
        cuGraphExecMemsetNodeSetParams cuGraphExecExternalSemaphoresSignalNodeSetParams
        cuGraphExecExternalSemaphoresWaitNodeSetParams cuGraphConditionalHandleCreate
        cuStreamUpdateCaptureDependencies""",
    "counts references to an object of the program's": """
        cuUserObjectCreate cuUserObjectRetain cuUserObjectRelease cuGraphRetainUserObject
        cuGraphReleaseUserObject""",
    "describes how memory that is charged is read": """
        cuTexRefSetMipmappedArray cuTexRefSetMipmapFilterMode cuTexRefSetMipmapLevelBias
        cuTexRefSetMipmapLevelClamp cuTexRefCreate cuTexRefDestroy cuTexObjectCreate cuTexObjectDestroy
        cuSurfObjectCreate cuSurfObjectDestroy cuTensorMapEncodeTiled cuTensorMapEncodeIm2col
        cuTensorMapEncodeIm2colWide cuTensorMapReplaceAddress""",
    "links on the host; loading the result is what takes memory": "cuLinkCreate cuLinkDestroy",
    "calls back, or writes logs, on the host": """
        cuLogsRegisterCallback cuLogsDumpToMemory cuCoredumpRegisterStartCallback
        cuCoredumpRegisterCompleteCallback cuCoredumpDeregisterCompleteCallback
        cuCheckpointOperationComplete""",
}

REASONS = {name: reason for reason, names in HARMLESS.items() for name in names.split()}
