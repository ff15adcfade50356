/* Contexts and each thread's stack of them. */
#ifndef SIM_CONTEXT_H
#define SIM_CONTEXT_H

#include "device.h"

struct sim_context {
    CUcontext handle;
    struct sim_device *device;
    unsigned int flags;
    bool primary;
    int retained; /* primary: how often; under the device's lock */
    unsigned long long id;
    _Atomic bool active; /* false: destroyed, or a primary context that nobody retains */
    size_t limits[CU_LIMIT_COUNT];
    uint64_t charged; /* bytes it costs on the card */
    struct sim_allocation *allocations; /* its memory; under the heap's lock */
    struct sim_stream *streams;         /* all of them; under the lock of streams */
    pthread_mutex_t lock;               /* guards legacy */
    struct sim_stream *legacy;          /* its default stream, made when first used */
};

/* The calling thread's current context; NULL when it has none. */
struct sim_context *sim_context_current(void);
/* The same as a result: NOT_INITIALIZED, NOT_PERMITTED (in a host function), INVALID_CONTEXT,
 * CONTEXT_IS_DESTROYED, or SUCCESS with *out set. */
CUresult sim_context_need(struct sim_context **out);
/* The context behind a handle, NULL if there is none. */
struct sim_context *sim_context_of(CUcontext handle);

#define SIM_NEED_CONTEXT(name)                               \
    struct sim_context *name;                                \
    do {                                                     \
        CUresult sim_result_ = sim_context_need(&(name));    \
        if (sim_result_ != CUDA_SUCCESS)                     \
            return sim_result_;                              \
    } while (0)

#endif
