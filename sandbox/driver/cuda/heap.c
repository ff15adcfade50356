/* Blocks of memory, cut into allocations. One lock of this process guards them all. */
#include "managed.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CLASSES = 12, SMALLEST = 512, LARGEST_SHARED = SMALLEST << (CLASSES - 1), SPARES = 16 };
#define ADDRESSES ((uintptr_t)1 << 47)

/* One block, or several in a row: a large allocation, or many small ones of a size class. */
struct sim_chunk {
    uintptr_t base;
    size_t size;
    struct sim_heap *heap;
    struct sim_device *device;
    size_t stride; /* distance between places */
    int size_class; /* -1: one large allocation */
    int fd;         /* the file they are in, -1: none */
    uint32_t places, live, touched; /* touched: places ever used */
    struct sim_allocation *free_places; /* linked by next */
    struct sim_chunk *next, *previous;  /* in heap->partial */
    struct sim_allocation allocations[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_chunk **owners; /* by address / 2 MiB; touched as it fills */
static unsigned long long last_id;
static uintptr_t spares[SPARES]; /* blocks given back, kept mapped: taking and giving one block in turns stays cheap */
static int spare_count;

static bool know_owners(void)
{
    if (owners != NULL)
        return true;
    void *memory = mmap(NULL, ADDRESSES / SIM_BLOCK * sizeof *owners, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    owners = memory == MAP_FAILED ? NULL : memory;
    return owners != NULL;
}

static void set_owner(uintptr_t base, size_t size, struct sim_chunk *chunk)
{
    for (uintptr_t at = base; at < base + size; at += SIM_BLOCK)
        owners[at / SIM_BLOCK] = chunk;
}

static struct sim_chunk *owner_of(uintptr_t address)
{
    return owners == NULL || address >= ADDRESSES ? NULL : owners[address / SIM_BLOCK];
}

/* ---- chunks ---- */

static uintptr_t take_space(const struct sim_heap *heap, size_t size)
{
    if (size == SIM_BLOCK && !heap->low && spare_count > 0)
        return spares[--spare_count];
    return sim_space_take(size, SIM_BLOCK, heap->low);
}

static void give_space(const struct sim_heap *heap, uintptr_t base, size_t size)
{
    if (size == SIM_BLOCK && !heap->low && spare_count < SPARES)
        spares[spare_count++] = base;
    else
        sim_space_give(base, size);
}

static struct sim_chunk *fill_chunk(struct sim_heap *heap, size_t size, int size_class)
{
    size_t stride = size_class < 0 ? size : (size_t)SMALLEST << size_class;
    struct sim_chunk *chunk = calloc(1, sizeof *chunk + size / stride * sizeof *chunk->allocations);
    if (chunk == NULL)
        return NULL;
    chunk->base = take_space(heap, size);
    if (chunk->base == 0) {
        free(chunk);
        return NULL;
    }
    chunk->size = size;
    chunk->heap = heap;
    chunk->device = heap->device;
    chunk->stride = stride;
    chunk->size_class = size_class;
    chunk->fd = -1;
    chunk->places = (uint32_t)(size / stride);
    set_owner(chunk->base, size, chunk);
    return chunk;
}

static struct sim_chunk *new_chunk(struct sim_heap *heap, size_t size, int size_class)
{
    if (heap->charged && !sim_device_charge(heap->device, size))
        return NULL;
    struct sim_chunk *chunk = fill_chunk(heap, size, size_class);
    if (chunk == NULL && heap->charged)
        sim_device_release(heap->device, size);
    return chunk;
}

static void free_chunk(struct sim_chunk *chunk)
{
    set_owner(chunk->base, chunk->size, NULL);
    if (chunk->fd < 0) {
        give_space(chunk->heap, chunk->base, chunk->size);
    } else { /* others may still have the file mapped */
        close(chunk->fd);
        sim_space_give(chunk->base, chunk->size);
    }
    if (chunk->heap->charged)
        sim_device_release(chunk->device, chunk->size);
    free(chunk);
}

static void link_partial(struct sim_chunk *chunk)
{
    struct sim_chunk **head = &chunk->heap->partial[chunk->size_class];
    chunk->previous = NULL;
    chunk->next = *head;
    if (*head != NULL)
        (*head)->previous = chunk;
    *head = chunk;
}

static void unlink_partial(struct sim_chunk *chunk)
{
    if (chunk->previous != NULL)
        chunk->previous->next = chunk->next;
    else
        chunk->heap->partial[chunk->size_class] = chunk->next;
    if (chunk->next != NULL)
        chunk->next->previous = chunk->previous;
}

/* ---- places within a chunk ---- */

static int class_of(size_t size)
{
    int size_class = 0;
    while (((size_t)SMALLEST << size_class) < size)
        size_class++;
    return size_class;
}

static struct sim_chunk *chunk_with_room(struct sim_heap *heap, size_t size)
{
    if (size > SIZE_MAX - SIM_BLOCK)
        return NULL;
    if (size > LARGEST_SHARED)
        return new_chunk(heap, sim_blocks(size), -1);
    int size_class = class_of(size);
    if (heap->partial[size_class] != NULL)
        return heap->partial[size_class];
    struct sim_chunk *chunk = new_chunk(heap, SIM_BLOCK, size_class);
    if (chunk != NULL)
        link_partial(chunk);
    return chunk;
}

static struct sim_allocation *take_place(struct sim_chunk *chunk)
{
    struct sim_allocation *place = chunk->free_places;
    if (place != NULL) {
        chunk->free_places = place->next;
    } else {
        place = &chunk->allocations[chunk->touched];
        place->base = chunk->base + chunk->touched * chunk->stride;
        place->chunk = chunk;
        chunk->touched++;
    }
    if (++chunk->live == chunk->places && chunk->size_class >= 0)
        unlink_partial(chunk);
    return place;
}

static void link_to_context(struct sim_allocation *allocation)
{
    struct sim_context *context = allocation->context;
    allocation->previous = NULL;
    allocation->next = context == NULL ? NULL : context->allocations;
    if (context == NULL)
        return;
    if (context->allocations != NULL)
        context->allocations->previous = allocation;
    context->allocations = allocation;
}

static void unlink_from_context(struct sim_allocation *allocation)
{
    if (allocation->context == NULL)
        return;
    if (allocation->previous != NULL)
        allocation->previous->next = allocation->next;
    else
        allocation->context->allocations = allocation->next;
    if (allocation->next != NULL)
        allocation->next->previous = allocation->previous;
}

static struct sim_allocation *take(struct sim_heap *heap, const struct sim_request *request)
{
    struct sim_chunk *chunk = know_owners() ? chunk_with_room(heap, request->size) : NULL;
    if (chunk == NULL)
        return NULL;
    struct sim_allocation *allocation = take_place(chunk);
    allocation->size = request->size;
    allocation->kind = request->kind;
    allocation->context = request->context;
    allocation->pool = request->pool;
    allocation->graph_memory = request->graph_memory;
    allocation->managed = request->kind == SIM_MEMORY_MANAGED ? sim_managed_new(allocation->base, request->size) : NULL;
    allocation->flags = request->flags;
    allocation->claimed = false;
    allocation->device = heap->device;
    allocation->id = ++last_id;
    link_to_context(allocation);
    return allocation;
}

static void give(struct sim_allocation *allocation)
{
    struct sim_chunk *chunk = allocation->chunk;
    unlink_from_context(allocation);
    if (allocation->managed != NULL)
        sim_managed_free(allocation->managed);
    allocation->managed = NULL;
    allocation->size = 0;
    allocation->context = NULL;
    bool was_full = chunk->live-- == chunk->places;
    if (chunk->live == 0) {
        if (chunk->size_class >= 0 && !was_full)
            unlink_partial(chunk);
        free_chunk(chunk);
        return;
    }
    allocation->next = chunk->free_places;
    chunk->free_places = allocation;
    if (was_full)
        link_partial(chunk);
}

struct sim_allocation *sim_heap_take(struct sim_heap *heap, const struct sim_request *request)
{
    pthread_mutex_lock(&lock);
    struct sim_allocation *allocation = take(heap, request);
    pthread_mutex_unlock(&lock);
    return allocation;
}

void sim_heap_give(struct sim_allocation *allocation)
{
    pthread_mutex_lock(&lock);
    give(allocation);
    pthread_mutex_unlock(&lock);
}

/* ---- finding ---- */

static struct sim_allocation *find(uintptr_t address)
{
    struct sim_chunk *chunk = owner_of(address);
    if (chunk == NULL)
        return NULL;
    struct sim_allocation *allocation = &chunk->allocations[(address - chunk->base) / chunk->stride];
    return address - allocation->base < allocation->size ? allocation : NULL;
}

bool sim_heap_find(uintptr_t address, struct sim_allocation *out)
{
    pthread_mutex_lock(&lock);
    struct sim_allocation *allocation = find(address);
    if (allocation != NULL)
        *out = *allocation;
    pthread_mutex_unlock(&lock);
    return allocation != NULL;
}

struct sim_allocation *sim_heap_claim(uintptr_t base, unsigned int kinds)
{
    pthread_mutex_lock(&lock);
    struct sim_allocation *allocation = find(base);
    if (allocation != NULL && (allocation->base != base || (kinds >> allocation->kind & 1) == 0 || allocation->claimed))
        allocation = NULL;
    if (allocation != NULL)
        allocation->claimed = true;
    pthread_mutex_unlock(&lock);
    return allocation;
}

void sim_heap_end(struct sim_context *context)
{
    pthread_mutex_lock(&lock);
    while (context->allocations != NULL)
        give(context->allocations);
    pthread_mutex_unlock(&lock);
}

/* ---- sharing ---- */

/* Under the lock. */
static bool share_chunk(struct sim_chunk *chunk)
{
    int fd = sim_space_share(chunk->base, chunk->size);
    chunk->fd = fd;
    return fd >= 0;
}

int sim_heap_share(uintptr_t base, size_t *offset, size_t *size)
{
    int fd = -1;
    pthread_mutex_lock(&lock);
    struct sim_chunk *chunk = owner_of(base);
    if (chunk != NULL && (chunk->fd >= 0 || share_chunk(chunk))) {
        fd = chunk->fd;
        *offset = base - chunk->base;
        *size = chunk->size;
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

/* ---- ranges of others ---- */

bool sim_heap_note(uintptr_t base, size_t size, enum sim_memory_kind kind, struct sim_device *device)
{
    struct sim_chunk *chunk = calloc(1, sizeof *chunk + sizeof *chunk->allocations);
    if (chunk == NULL)
        return false;
    *chunk = (struct sim_chunk){.base = base, .size = size, .stride = size, .size_class = -1, .fd = -1, .device = device};
    pthread_mutex_lock(&lock);
    bool known = know_owners();
    if (known) {
        chunk->allocations[0] = (struct sim_allocation){
            .base = base, .size = size, .kind = kind, .device = device, .id = ++last_id, .chunk = chunk};
        set_owner(base, size, chunk);
    }
    pthread_mutex_unlock(&lock);
    if (!known)
        free(chunk);
    return known;
}

void sim_heap_forget(uintptr_t base)
{
    pthread_mutex_lock(&lock);
    struct sim_chunk *chunk = owner_of(base);
    if (chunk != NULL)
        set_owner(chunk->base, chunk->size, NULL);
    pthread_mutex_unlock(&lock);
    free(chunk);
}
