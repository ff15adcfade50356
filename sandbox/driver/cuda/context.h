/* Contexts and each thread's stack of them. */
#ifndef SIM_CONTEXT_H
#define SIM_CONTEXT_H

#include "device.h"

struct sim_context {
    CUcontext handle;
    struct sim_device *device;
    unsigned int flags;
    bool primary;
    struct sim_context *parent; /* of a green context: the primary one, which has its code; else NULL */
    void *green;                /* its handle as a green context */
    int retained; /* primary: how often; under the device's lock */
    _Atomic int attached; /* by cuCtxAttach, beyond its maker */
    unsigned long long id;
    _Atomic bool active; /* false: destroyed, or a primary context that nobody retains */
    _Atomic uint64_t peers; /* the devices it reaches, by ordinal */
    size_t limits[CU_LIMIT_COUNT];
    uint64_t charged;  /* bytes it costs on the card, with what its limits reserve; under lock */
    uint64_t modules;  /* bytes that modules cost in it; under lock */
    _Atomic unsigned long long life; /* changes when it is emptied; no two contexts' are alike, and none is 0 */
    struct sim_allocation *allocations; /* its memory; under the heap's lock */
    struct sim_stream *streams;         /* all of them; under the lock of streams */
    pthread_mutex_t lock;               /* guards limits and what is charged, and the making of legacy */
    _Atomic(struct sim_stream *) legacy; /* its default stream, made when first used */
    struct sim_context *next;           /* of all; under the lock of residence.c */
};

/* The calling thread's current context; NULL when it has none. */
struct sim_context *sim_context_current(void);
/* The same as a result: NOT_INITIALIZED, NOT_PERMITTED (in a host function), INVALID_CONTEXT,
 * CONTEXT_IS_DESTROYED, or SUCCESS with *out set. */
CUresult sim_context_need(struct sim_context **out);
/* The limits that a new context has: what the driver reserves for them is part of the context's own cost. */
extern const size_t sim_default_limits[CU_LIMIT_COUNT];

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
