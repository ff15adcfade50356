/* A table of handles, reserved once, touched as it fills. Freed places are used again in the order they were freed. */
#include "handle.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { HANDLES = 1 << 22, REST = 4096 };

struct entry {
    _Atomic(void *) object;
    _Atomic uint32_t kind;
    uint32_t next_free; /* index + 1 */
};

static struct entry *table;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t rest; /* how many others are freed before a place is used again */
static uint32_t used, first_free, last_free; /* the free list's ends as index + 1 */

static void reserve(void)
{
    const char *text = getenv("SIMGPU_HANDLE_REST");
    rest = text == NULL ? REST : (uint32_t)strtoul(text, NULL, 10);
    void *memory = mmap(NULL, HANDLES * sizeof(struct entry), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    table = memory == MAP_FAILED ? NULL : memory;
}

/* Under the lock. Places are left to rest until some thousand others were freed, so that stale handles are noticed; or not at
 * all, as with a real driver, when SIMGPU_HANDLE_REST says 0. */
static struct entry *take_place(void)
{
    static uint32_t resting;
    if (first_free != 0 && (resting++ >= rest || used == HANDLES)) {
        struct entry *entry = &table[first_free - 1];
        first_free = entry->next_free;
        return entry;
    }
    return used < HANDLES ? &table[used++] : NULL;
}

void *sim_handle_new(enum sim_kind kind, void *object)
{
    pthread_once(&once, reserve);
    if (table == NULL || object == NULL)
        return NULL;
    pthread_mutex_lock(&lock);
    struct entry *entry = take_place();
    pthread_mutex_unlock(&lock);
    if (entry == NULL)
        return NULL;
    atomic_store_explicit(&entry->object, object, memory_order_relaxed);
    atomic_store_explicit(&entry->kind, kind, memory_order_release); /* publishes the object */
    return entry;
}

static struct entry *find(const void *handle)
{
    uintptr_t offset = (uintptr_t)handle - (uintptr_t)table;
    if (table == NULL || offset >= HANDLES * sizeof(struct entry) || offset % sizeof(struct entry) != 0)
        return NULL;
    return &table[offset / sizeof(struct entry)];
}

void *sim_handle_get(const void *handle, enum sim_kind kind)
{
    struct entry *entry = find(handle);
    if (entry == NULL || atomic_load_explicit(&entry->kind, memory_order_acquire) != kind)
        return NULL;
    return atomic_load_explicit(&entry->object, memory_order_relaxed);
}

void *sim_handle_end(const void *handle, enum sim_kind kind)
{
    struct entry *entry = find(handle);
    uint32_t expected = kind;
    if (entry == NULL || !atomic_compare_exchange_strong(&entry->kind, &expected, SIM_FREE))
        return NULL;
    void *object = atomic_load_explicit(&entry->object, memory_order_relaxed);
    pthread_mutex_lock(&lock);
    uint32_t place = (uint32_t)(entry - table) + 1;
    entry->next_free = 0;
    if (first_free == 0)
        first_free = place;
    else
        table[last_free - 1].next_free = place;
    last_free = place;
    pthread_mutex_unlock(&lock);
    return object;
}
