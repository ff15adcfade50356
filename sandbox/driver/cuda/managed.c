/* The blocks of managed memory and where they are. One lock of this process guards them all; it is taken last. */
#include "managed.h"

#include <stdlib.h>

#include "../machine/resident.h"

enum { DEVICES = 64 };

struct sim_managed {
    uintptr_t base;
    size_t size, count;
    uint64_t used;               /* when it was moved or touched last, by a count of such events */
    uint64_t resident[DEVICES];  /* bytes on each device */
    size_t first[DEVICES];       /* no block before this one is on the device */
    struct sim_managed *next, *previous;
    struct sim_managed_block blocks[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_managed *all;
static _Atomic size_t live;
static uint64_t events;
static struct sim_traffic moved; /* by the call under way */

/* ---- allocations ---- */

struct sim_managed *sim_managed_new(uintptr_t base, size_t size)
{
    size_t count = sim_blocks(size) / SIM_BLOCK;
    struct sim_managed *managed = calloc(1, sizeof *managed + count * sizeof *managed->blocks);
    if (managed == NULL)
        return NULL;
    managed->base = base;
    managed->size = size;
    managed->count = count;
    pthread_mutex_lock(&lock);
    managed->next = all;
    if (all != NULL)
        all->previous = managed;
    all = managed;
    live++;
    pthread_mutex_unlock(&lock);
    return managed;
}

void sim_managed_free(struct sim_managed *managed)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < DEVICES; i++)
        if (managed->resident[i] > 0)
            sim_resident_remove(sim_device(i)->unit, sim_device(i)->slot, managed->resident[i]);
    if (managed->previous != NULL)
        managed->previous->next = managed->next;
    else
        all = managed->next;
    if (managed->next != NULL)
        managed->next->previous = managed->previous;
    live--;
    pthread_mutex_unlock(&lock);
    free(managed);
}

bool sim_managed_any(void)
{
    return atomic_load_explicit(&live, memory_order_relaxed) > 0;
}

/* Under the lock, as is all that is done with what it finds. */
static struct sim_managed *find(uintptr_t address, size_t size)
{
    struct sim_managed *one = all;
    while (one != NULL && address - one->base >= one->size)
        one = one->next;
    return one != NULL && size <= one->size - (address - one->base) ? one : NULL;
}

bool sim_managed_has(uintptr_t address, size_t size)
{
    if (!sim_managed_any())
        return false;
    pthread_mutex_lock(&lock);
    bool found = find(address, size) != NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

/* ---- blocks; all under the lock ---- */

/* The last block of an allocation takes what it needs, in pages of 64 KiB. */
static uint64_t bytes_of(const struct sim_managed *managed, size_t index)
{
    enum { PAGE = 64 << 10 };
    size_t rest = managed->size - index * SIM_BLOCK;
    return rest >= SIM_BLOCK ? SIM_BLOCK : (rest + PAGE - 1) / PAGE * PAGE;
}

static void forget(struct sim_managed *managed, size_t index, int device)
{
    managed->blocks[index].on &= ~((uint64_t)1 << device);
    managed->resident[device] -= bytes_of(managed, index);
}

static void leave(struct sim_managed *managed, size_t index, int device)
{
    forget(managed, index, device);
    sim_resident_remove(sim_device(device)->unit, sim_device(device)->slot, bytes_of(managed, index));
}

static void leave_all(struct sim_managed *managed, size_t index, int except)
{
    for (int i = 0; managed->blocks[index].on != 0 && i < DEVICES; i++)
        if (i != except && (managed->blocks[index].on >> i & 1) != 0)
            leave(managed, index, i);
}

/* The allocation on a device that was used the longest ago. */
static struct sim_managed *oldest_on(int device)
{
    struct sim_managed *oldest = NULL;
    for (struct sim_managed *one = all; one != NULL; one = one->next)
        if (one->resident[device] > 0 && (oldest == NULL || one->used < oldest->used))
            oldest = one;
    return oldest;
}

/* The next block that goes when room is made, and no longer counts as there. */
static size_t next_block(struct sim_managed *managed, int device)
{
    size_t index = managed->first[device];
    while ((managed->blocks[index].on >> device & 1) == 0)
        index++;
    managed->first[device] = index + 1;
    return index;
}

static uint64_t evict_block(struct sim_managed *managed, int device)
{
    size_t index = next_block(managed, device);
    leave(managed, index, device);
    return bytes_of(managed, index);
}

/* Finds out which blocks other processes have taken off a device: whole ones, so perhaps a bit more. */
static void learn_taken(const struct sim_device *device)
{
    uint64_t taken = sim_resident_taken(device->unit, device->slot), found = 0;
    struct sim_managed *oldest;
    while (found < taken && (oldest = oldest_on(device->ordinal)) != NULL) {
        size_t index = next_block(oldest, device->ordinal);
        forget(oldest, index, device->ordinal);
        found += bytes_of(oldest, index);
    }
    if (found > taken)
        sim_resident_remove(device->unit, device->slot, found - taken);
}

static uint64_t resident_on(int device)
{
    uint64_t sum = 0;
    for (const struct sim_managed *one = all; one != NULL; one = one->next)
        sum += one->resident[device];
    return sum;
}

static bool evict(const struct sim_device *device, uint64_t bytes)
{
    learn_taken(device);
    uint64_t used = sim_memory_used(device->unit);
    uint64_t missing = used + bytes > device->total ? used + bytes - device->total : 0;
    if (device->ordinal >= DEVICES ||
        resident_on(device->ordinal) + sim_resident_others(device->unit, device->slot) < missing)
        return false;
    uint64_t made = sim_resident_take(device->unit, device->slot, missing);
    while (made < missing && resident_on(device->ordinal) > 0)
        made += evict_block(oldest_on(device->ordinal), device->ordinal);
    moved.out += made;
    return true;
}

bool sim_managed_evict(struct sim_device *device, uint64_t bytes)
{
    if (bytes > device->total)
        return false;
    pthread_mutex_lock(&lock);
    bool done = evict(device, bytes);
    pthread_mutex_unlock(&lock);
    return done;
}

/* Whoever asks a full card for room waits for neighbours that may have been in the way for an instant. Here the card is full as a
 * rule, so it is looked at first. */
static bool make_room(struct sim_device *device, uint64_t bytes)
{
    bool full = sim_memory_used(device->unit) + bytes > device->total;
    if (full && !evict(device, bytes))
        return false;
    return sim_device_charge_now(device, bytes) || (evict(device, bytes) && sim_device_charge_now(device, bytes));
}

/* Makes a copy of a block on a device that the process is attached to, the only one unless the block is mostly read. Without
 * room it stays where it is. */
static void enter(struct sim_managed *managed, size_t index, struct sim_device *device)
{
    struct sim_managed_block *block = &managed->blocks[index];
    uint64_t bytes = bytes_of(managed, index);
    if ((block->on >> device->ordinal & 1) == 0) {
        if (!make_room(device, bytes))
            return;
        block->on |= (uint64_t)1 << device->ordinal;
        managed->resident[device->ordinal] += bytes;
        sim_resident_add(device->unit, device->slot, bytes);
        moved.in += bytes;
        if (index < managed->first[device->ordinal])
            managed->first[device->ordinal] = index;
    }
    if (!block->read_mostly)
        leave_all(managed, index, device->ordinal);
}

/* ---- moving ---- */

/* Asked before the lock is taken: attaching takes the device's, under which pools ask for room here. */
static bool may_enter(struct sim_device *device)
{
    return device->ordinal < DEVICES && sim_device_attach(device);
}

/* Does a device map the block where it is, rather than having it come? */
static bool stays(const struct sim_managed_block *block, const struct sim_device *device)
{
    if ((block->accessed_by >> device->ordinal & 1) != 0)
        return true;
    return block->on == 0 && sim_location_is_host(block->preferred);
}

static void use_block(struct sim_managed *managed, size_t index, struct sim_device *device)
{
    if (!stays(&managed->blocks[index], device))
        enter(managed, index, device);
    else if ((managed->blocks[index].on >> device->ordinal & 1) == 0)
        moved.in += bytes_of(managed, index); /* read where it is, and not kept */
}

static void use_all(struct sim_managed *managed, struct sim_device *device)
{
    learn_taken(device);
    sim_resident_use(device->unit, device->slot);
    managed->used = ++events;
    for (size_t i = 0; i < managed->count; i++)
        use_block(managed, i, device);
}

struct sim_traffic sim_managed_touch(struct sim_device *device, uintptr_t address)
{
    if (!sim_managed_has(address, 1) || !may_enter(device))
        return (struct sim_traffic){0};
    pthread_mutex_lock(&lock);
    moved = (struct sim_traffic){0};
    struct sim_managed *managed = find(address, 1);
    if (managed != NULL)
        use_all(managed, device);
    struct sim_traffic traffic = moved;
    pthread_mutex_unlock(&lock);
    return traffic;
}

static void span(const struct sim_managed *managed, uintptr_t address, size_t size, size_t *from, size_t *to)
{
    *from = (address - managed->base) / SIM_BLOCK;
    *to = (address - managed->base + size + SIM_BLOCK - 1) / SIM_BLOCK;
}

bool sim_managed_each(uintptr_t address, size_t size, void (*visit)(struct sim_managed_block *block, void *data), void *data)
{
    size_t from, to;
    pthread_mutex_lock(&lock);
    struct sim_managed *managed = find(address, size);
    if (managed != NULL) {
        span(managed, address, size, &from, &to);
        for (size_t i = from; i < to; i++)
            visit(&managed->blocks[i], data);
    }
    pthread_mutex_unlock(&lock);
    return managed != NULL;
}

/* Under the lock. */
static void move(struct sim_managed *managed, uintptr_t address, size_t size, struct sim_device *device)
{
    size_t from, to;
    span(managed, address, size, &from, &to);
    if (device != NULL)
        learn_taken(device);
    managed->used = ++events;
    for (size_t i = from; i < to; i++) {
        if (device != NULL)
            enter(managed, i, device);
        else if (!managed->blocks[i].read_mostly)
            leave_all(managed, i, -1);
    }
}

void sim_managed_move(uintptr_t address, size_t size, CUmemLocation location)
{
    struct sim_device *device = sim_device_at(location);
    if (!sim_managed_has(address, size) || (device != NULL && !may_enter(device)))
        return;
    pthread_mutex_lock(&lock);
    struct sim_managed *managed = find(address, size);
    if (managed != NULL)
        move(managed, address, size, device);
    pthread_mutex_unlock(&lock);
}

/* Under the lock. */
static void collapse(struct sim_managed *managed, uintptr_t address, size_t size)
{
    size_t from, to;
    span(managed, address, size, &from, &to);
    for (size_t i = from; i < to; i++) {
        const struct sim_device *preferred = sim_device_at(managed->blocks[i].preferred);
        if (managed->blocks[i].read_mostly)
            leave_all(managed, i, preferred == NULL ? -1 : preferred->ordinal);
    }
}

void sim_managed_collapse(uintptr_t address, size_t size)
{
    pthread_mutex_lock(&lock);
    struct sim_managed *managed = find(address, size);
    if (managed != NULL)
        collapse(managed, address, size);
    pthread_mutex_unlock(&lock);
}
