/*
 * The code of modules on the card: in which contexts a module is loaded, and what that costs there. With CUDA's default of
 * lazy loading a module's code comes when a function of it is asked for or launched; with CUDA_MODULE_LOADING=EAGER at once.
 */
#include <stdlib.h>
#include <string.h>

#include "handle.h"
#include "module.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_module *libraries;
static struct sim_context *contexts; /* where libraries are loaded: all that ever were, by next */

bool sim_loading_is_eager(void)
{
    const char *mode = getenv("CUDA_MODULE_LOADING");
    return mode != NULL && strcmp(mode, "EAGER") == 0;
}

/* Under the lock. */
static struct sim_residence *find(const struct sim_module *module, const struct sim_context *context)
{
    struct sim_residence *one = module->residences;
    while (one != NULL && one->life != context->life)
        one = one->next;
    return one;
}

static bool charge(struct sim_context *context, uint64_t bytes)
{
    pthread_mutex_lock(&context->lock);
    bool charged = bytes == 0 || sim_device_charge(context->device, bytes);
    if (charged)
        context->modules += bytes;
    pthread_mutex_unlock(&context->lock);
    return charged;
}

/* What a context that was ended meanwhile had went with it. */
static void release(struct sim_residence *one)
{
    pthread_mutex_lock(&one->context->lock);
    if (one->life == one->context->life) {
        one->context->modules -= one->bytes;
        sim_device_release(one->context->device, one->bytes);
    }
    pthread_mutex_unlock(&one->context->lock);
    free(one);
}

/* Under the lock. */
static CUresult enter(struct sim_module *module, struct sim_context *context)
{
    if (find(module, context) != NULL)
        return CUDA_SUCCESS;
    struct sim_residence *one = calloc(1, sizeof *one);
    if (one == NULL || !charge(context, context->device->card->module)) {
        free(one);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *one = (struct sim_residence){context, context->life, context->device->card->module, module->residences};
    module->residences = one;
    return CUDA_SUCCESS;
}

CUresult sim_module_need(struct sim_module *module, struct sim_context *context)
{
    context = context->parent != NULL ? context->parent : context;
    if (atomic_load_explicit(&module->latest, memory_order_relaxed) == context->life)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    CUresult result = enter(module, context);
    if (result == CUDA_SUCCESS)
        module->latest = context->life;
    pthread_mutex_unlock(&lock);
    return result;
}

bool sim_module_resident(const struct sim_module *module, const struct sim_context *context)
{
    pthread_mutex_lock(&lock);
    bool resident = find(module, context) != NULL;
    pthread_mutex_unlock(&lock);
    return resident;
}

void sim_module_evict(struct sim_module *module)
{
    pthread_mutex_lock(&lock);
    while (module->residences != NULL) {
        struct sim_residence *one = module->residences;
        module->residences = one->next;
        release(one);
    }
    struct sim_module **at = &libraries;
    while (*at != NULL && *at != module)
        at = &(*at)->next;
    if (*at == module)
        *at = module->next;
    pthread_mutex_unlock(&lock);
}

/* ---- libraries ---- */

CUresult sim_library_arrives(struct sim_module *library)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    library->next = libraries;
    libraries = library;
    for (struct sim_context *context = contexts; context != NULL; context = context->next)
        if (result == CUDA_SUCCESS && sim_loading_is_eager() && atomic_load(&context->active))
            result = enter(library, context);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Contexts are never freed, so the list only grows. */
static void remember(struct sim_context *context)
{
    struct sim_context *one = contexts;
    while (one != NULL && one != context)
        one = one->next;
    if (one != NULL)
        return;
    context->next = contexts;
    contexts = context;
}

CUresult sim_libraries_enter(struct sim_context *context)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    remember(context);
    for (struct sim_module *library = libraries; library != NULL; library = library->next)
        if (result == CUDA_SUCCESS && sim_loading_is_eager())
            result = enter(library, context);
    pthread_mutex_unlock(&lock);
    return result;
}
