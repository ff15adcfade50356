/* The shared state file: opening it, claiming slots in it, counting memory in it. */
#include "self.h"
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char MAGIC[16] = "simgpu-state-4";

uint64_t sim_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

/* ---- the file ---- */

static void init_unit(struct sim_unit *unit, const struct sim_card *card)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&unit->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    unit->last = SIM_NO_SLOT;
    unit->switch_ns = card->switch_ns;
}

/* Only the units there are: each is some megabytes of a file that is sparse until then. */
static void init_state(struct sim_state *state, const struct sim_scenario *scenario)
{
    for (int card = 0; card < scenario->card_count; card++) {
        init_unit(&state->units[sim_unit_of_card(card)], &scenario->cards[card]);
        for (int mig = 0; mig < scenario->cards[card].mig_count; mig++)
            init_unit(&state->units[sim_unit_of_mig(card, mig)], &scenario->cards[card]);
    }
    memcpy(state->magic, MAGIC, sizeof MAGIC);
}

/* Under the file's lock: makes a new file a state, and refuses anything else that is none. */
static struct sim_state *map_state(int fd, const struct sim_scenario *scenario)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return NULL;
    bool fresh = info.st_size == 0;
    if (fresh && ftruncate(fd, sizeof(struct sim_state)) != 0)
        return NULL;
    if (!fresh && (size_t)info.st_size != sizeof(struct sim_state))
        return NULL;
    struct sim_state *state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (state == MAP_FAILED)
        return NULL;
    if (fresh)
        init_state(state, scenario);
    if (memcmp(state->magic, MAGIC, sizeof MAGIC) == 0)
        return state;
    munmap(state, sizeof *state);
    return NULL;
}

static struct sim_state *open_state(const char *path, const struct sim_scenario *scenario)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return NULL;
    struct sim_state *state = flock(fd, LOCK_EX) == 0 ? map_state(fd, scenario) : NULL;
    flock(fd, LOCK_UN); /* closing alone would not: the mapping keeps the file open */
    close(fd);
    return state;
}

bool sim_machine_open(struct sim_machine *machine, const char *directory)
{
    char path[4096];
    machine->state = NULL;
    if (directory == NULL) {
        fprintf(stderr, "simgpu: SIMGPU_DIR is not set\n");
        return false;
    }
    snprintf(machine->directory, sizeof machine->directory, "%s", directory);
    snprintf(path, sizeof path, "%s/scenario", machine->directory);
    if (!sim_scenario_read(path, &machine->scenario))
        return false;
    snprintf(path, sizeof path, "%s/state", machine->directory);
    machine->state = open_state(path, &machine->scenario);
    if (machine->state == NULL)
        fprintf(stderr, "simgpu: %s is no state of a simulated machine\n", path);
    return machine->state != NULL;
}

void sim_machine_close(struct sim_machine *machine)
{
    if (machine->state != NULL)
        munmap(machine->state, sizeof *machine->state);
    machine->state = NULL;
}

int sim_unit_of_card(int card)
{
    return card;
}

int sim_unit_of_mig(int card, int mig)
{
    return SIM_MAX_CARDS + card * SIM_MAX_MIG + mig;
}

/* ---- processes ---- */

/* What names the program that runs, of the random bytes that the kernel gives to each. */
static uint32_t own_image(void)
{
    uint32_t image = 0;
    const void *random = (const void *)getauxval(AT_RANDOM);
    if (random != NULL)
        memcpy(&image, random, sizeof image);
    return image;
}

bool sim_slot_alive(const struct sim_slot *slot)
{
    pid_t pid = atomic_load(&slot->pid);
    uint64_t expected = atomic_load(&slot->birth);
    if (pid == sim_self())
        return true;
    uint64_t actual = sim_birth_of(pid);
    return actual != 0 && (expected == 0 || expected == actual);
}

static void raise_slots_used(struct sim_unit *unit, uint32_t count)
{
    uint32_t seen = atomic_load(&unit->slots_used);
    while (seen < count && !atomic_compare_exchange_weak(&unit->slots_used, &seen, count)) {
    }
}

static int find_slot(struct sim_unit *unit, int32_t pid)
{
    uint32_t used = atomic_load(&unit->slots_used);
    for (uint32_t i = 0; i < used; i++)
        if (atomic_load(&unit->slots[i].pid) == pid)
            return (int)i;
    return SIM_NO_SLOT;
}

static int take_free_slot(struct sim_unit *unit, int32_t pid)
{
    for (int i = 0; i < SIM_SLOTS; i++) {
        int32_t nobody = 0;
        if (!atomic_compare_exchange_strong(&unit->slots[i].pid, &nobody, pid))
            continue;
        raise_slots_used(unit, (uint32_t)i + 1);
        atomic_store(&unit->slots[i].birth, sim_birth_of(pid));
        atomic_store(&unit->slots[i].image, own_image());
        return i;
    }
    return SIM_NO_SLOT;
}

int sim_slot_claim(struct sim_unit *unit)
{
    sim_unit_collect(unit); /* also frees what an earlier process of the same pid left */
    int32_t pid = sim_self();
    int mine = find_slot(unit, pid);
    return mine != SIM_NO_SLOT ? mine : take_free_slot(unit, pid);
}

/* The order matters: until pid is 0 nobody else claims the slot, and its memory is free before. */
static void clear_slot(struct sim_unit *unit, int index, int32_t pid)
{
    struct sim_slot *slot = &unit->slots[index];
    sim_share_forget(unit, index);
    atomic_store(&slot->memory, 0);
    atomic_store(&slot->aside, 0);
    atomic_store(&slot->stage, 0);
    atomic_store(&slot->birth, 0);
    atomic_store(&slot->image, 0);
    slot->managed = slot->taken = slot->used_at = 0;
    slot->demand = slot->done = slot->span_count = 0;
    slot->running = false;
    atomic_compare_exchange_strong(&slot->pid, &pid, 0);
}

void sim_slot_release(struct sim_unit *unit, int index)
{
    sim_unit_lock(unit);
    clear_slot(unit, index, sim_self());
    sim_unit_unlock(unit);
}

/* True when the slot is of a process that is gone, or of an earlier one, or program, with this process's pid. */
static bool slot_is_stale(const struct sim_slot *slot)
{
    int32_t pid = atomic_load(&slot->pid);
    if (pid == 0)
        return false;
    if (pid != sim_self())
        return !sim_slot_alive(slot);
    uint64_t birth = atomic_load(&slot->birth);
    if (birth == 0) /* another thread is just taking it */
        return false;
    return birth != sim_birth_of(pid) || (atomic_load(&slot->image) != 0 && atomic_load(&slot->image) != own_image());
}

void sim_unit_collect(struct sim_unit *unit)
{
    uint32_t used = atomic_load(&unit->slots_used);
    for (uint32_t i = 0; i < used; i++) {
        if (!slot_is_stale(&unit->slots[i]))
            continue;
        sim_unit_lock(unit);
        if (slot_is_stale(&unit->slots[i]))
            clear_slot(unit, (int)i, atomic_load(&unit->slots[i].pid));
        sim_unit_unlock(unit);
    }
}

void sim_unit_lock(struct sim_unit *unit)
{
    if (pthread_mutex_lock(&unit->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&unit->lock); /* the dead one's slot is collected by whoever looks next */
}

void sim_unit_unlock(struct sim_unit *unit)
{
    pthread_mutex_unlock(&unit->lock);
}

/* ---- memory ---- */

uint64_t sim_memory_used(struct sim_unit *unit)
{
    uint64_t sum = 0;
    uint32_t used = atomic_load(&unit->slots_used);
    for (uint32_t i = 0; i < used; i++)
        sum += atomic_load(&unit->slots[i].memory);
    return sum;
}

/* Adds first and looks then: of two that race for the last bytes at least one sees the other. */
static bool try_charge(struct sim_unit *unit, int slot, uint64_t bytes, uint64_t limit)
{
    if (bytes > limit)
        return false;
    atomic_fetch_add(&unit->slots[slot].memory, bytes);
    if (sim_memory_used(unit) <= limit)
        return true;
    atomic_fetch_sub(&unit->slots[slot].memory, bytes);
    return false;
}

bool sim_memory_charge(struct sim_unit *unit, int slot, uint64_t bytes, uint64_t limit)
{
    if (try_charge(unit, slot, bytes, limit))
        return true;
    sim_unit_collect(unit);
    for (int again = 0; again < 3; again++) { /* a neighbour that asked too much may have been in the way for an instant */
        if (try_charge(unit, slot, bytes, limit))
            return true;
        sched_yield();
    }
    return false;
}

void sim_memory_release(struct sim_unit *unit, int slot, uint64_t bytes)
{
    atomic_fetch_sub(&unit->slots[slot].memory, bytes);
}
