/* Texture and surface objects: handles that remember what they were made of. */
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "handle.h"

enum { RESOURCE_BYTES = 144, TEXTURE_BYTES = 104, VIEW_BYTES = 112, RESOURCE_TYPES = 4 };

struct object {
    char resource[RESOURCE_BYTES], texture[TEXTURE_BYTES], view[VIEW_BYTES];
};

static bool sound(const void *resource)
{
    int type;
    if (resource == NULL)
        return false;
    memcpy(&type, resource, sizeof type);
    return type >= 0 && type < RESOURCE_TYPES;
}

static CUresult make(unsigned long long *out, enum sim_kind kind, const void *resource, const void *texture, const void *view)
{
    SIM_NEED_CONTEXT(context);
    (void)context;
    if (out == NULL || !sound(resource))
        return CUDA_ERROR_INVALID_VALUE;
    struct object *object = calloc(1, sizeof *object);
    if (object == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(object->resource, resource, RESOURCE_BYTES);
    if (texture != NULL)
        memcpy(object->texture, texture, TEXTURE_BYTES);
    if (view != NULL)
        memcpy(object->view, view, VIEW_BYTES);
    *out = (unsigned long long)(uintptr_t)sim_handle_new(kind, object);
    return CUDA_SUCCESS;
}

static CUresult end(unsigned long long handle, enum sim_kind kind)
{
    SIM_NEED_CONTEXT(context);
    (void)context;
    struct object *object = sim_handle_end((const void *)(uintptr_t)handle, kind);
    free(object);
    return object == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult tell(void *out, unsigned long long handle, enum sim_kind kind, size_t offset, size_t size)
{
    SIM_NEED_INIT();
    const char *object = sim_handle_get((const void *)(uintptr_t)handle, kind);
    if (out == NULL || object == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(out, object + offset, size);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuTexObjectCreate(unsigned long long *out, const void *resource, const void *texture, const void *view)
{
    if (texture == NULL)
        return sim_ready() ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
    return make(out, SIM_TEXTURE, resource, texture, view);
}

SIM_API CUresult cuTexObjectDestroy(unsigned long long handle)
{
    return end(handle, SIM_TEXTURE);
}

SIM_API CUresult cuTexObjectGetResourceDesc(void *out, unsigned long long handle)
{
    return tell(out, handle, SIM_TEXTURE, offsetof(struct object, resource), RESOURCE_BYTES);
}

SIM_API CUresult cuTexObjectGetTextureDesc(void *out, unsigned long long handle)
{
    return tell(out, handle, SIM_TEXTURE, offsetof(struct object, texture), TEXTURE_BYTES);
}

SIM_API CUresult cuTexObjectGetResourceViewDesc(void *out, unsigned long long handle)
{
    return tell(out, handle, SIM_TEXTURE, offsetof(struct object, view), VIEW_BYTES);
}

SIM_API CUresult cuSurfObjectCreate(unsigned long long *out, const void *resource)
{
    return make(out, SIM_SURFACE, resource, NULL, NULL);
}

SIM_API CUresult cuSurfObjectDestroy(unsigned long long handle)
{
    return end(handle, SIM_SURFACE);
}

SIM_API CUresult cuSurfObjectGetResourceDesc(void *out, unsigned long long handle)
{
    return tell(out, handle, SIM_SURFACE, offsetof(struct object, resource), RESOURCE_BYTES);
}
