/* User objects are counted; the last reference calls the destructor, as a host function that must not use CUDA. */
#include "user_object.h"

#include <stdlib.h>

#include "graph.h"
#include "handle.h"

struct sim_user_object {
    CUhostFn destroy;
    void *data;
    _Atomic int references;
};

static void release(struct sim_user_object *object, unsigned int count)
{
    if (atomic_fetch_sub(&object->references, (int)count) != (int)count)
        return;
    object->destroy(object->data);
    free(object);
}

bool sim_user_references_copy(struct sim_user_reference **to, const struct sim_user_reference *from)
{
    for (; from != NULL; from = from->next) {
        struct sim_user_reference *copy = malloc(sizeof *copy);
        if (copy == NULL)
            return false;
        *copy = (struct sim_user_reference){from->object, from->count, *to};
        atomic_fetch_add(&from->object->references, (int)from->count);
        *to = copy;
    }
    return true;
}

void sim_user_references_drop(struct sim_user_reference **references)
{
    while (*references != NULL) {
        struct sim_user_reference *first = *references;
        *references = first->next;
        release(first->object, first->count);
        free(first);
    }
}

SIM_API CUresult cuUserObjectCreate(void **out, void *data, CUhostFn destroy, unsigned int count, unsigned int flags)
{
    enum { NO_DESTRUCTOR_SYNC = 1 };
    SIM_NEED_INIT();
    if (out == NULL || destroy == NULL || count == 0 || flags != NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_user_object *object = malloc(sizeof *object);
    if (object == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *object = (struct sim_user_object){destroy, data, (int)count};
    *out = sim_handle_new(SIM_USER_OBJECT, object);
    return CUDA_SUCCESS;
}

#define NEED_OBJECT(handle, name)                                             \
    SIM_NEED_INIT();                                                          \
    struct sim_user_object *name = sim_handle_get(handle, SIM_USER_OBJECT);   \
    if ((name) == NULL || count == 0)                                         \
        return CUDA_ERROR_INVALID_VALUE

SIM_API CUresult cuUserObjectRetain(void *handle, unsigned int count)
{
    NEED_OBJECT(handle, object);
    atomic_fetch_add(&object->references, (int)count);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuUserObjectRelease(void *handle, unsigned int count)
{
    NEED_OBJECT(handle, object);
    if (atomic_load(&object->references) == (int)count)
        sim_handle_end(handle, SIM_USER_OBJECT);
    release(object, count);
    return CUDA_SUCCESS;
}

/* The caller's references become the graph's (flag 1), or the graph gets its own. */
SIM_API CUresult cuGraphRetainUserObject(CUgraph graph_handle, void *handle, unsigned int count, unsigned int flags)
{
    enum { MOVE = 1 };
    NEED_OBJECT(handle, object);
    struct sim_graph *graph = sim_handle_get(graph_handle, SIM_GRAPH);
    struct sim_user_reference *reference = graph == NULL || flags > MOVE ? NULL : malloc(sizeof *reference);
    if (reference == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags != MOVE)
        atomic_fetch_add(&object->references, (int)count);
    *reference = (struct sim_user_reference){object, count, graph->references};
    graph->references = reference;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuGraphReleaseUserObject(CUgraph graph_handle, void *handle, unsigned int count)
{
    NEED_OBJECT(handle, object);
    struct sim_graph *graph = sim_handle_get(graph_handle, SIM_GRAPH);
    if (graph == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_user_reference **at = &graph->references;
    while (*at != NULL && ((*at)->object != object || (*at)->count != count))
        at = &(*at)->next;
    struct sim_user_reference *reference = *at;
    if (reference == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *at = reference->next;
    free(reference);
    release(object, count);
    return CUDA_SUCCESS;
}
