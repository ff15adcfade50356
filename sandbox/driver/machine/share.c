/* The table of memory that processes share. */
#include "share.h"

static struct sim_share *find(struct sim_unit *unit, uint64_t name)
{
    for (int i = 0; name != 0 && i < SIM_SHARES; i++)
        if (unit->shares[i].name == name)
            return &unit->shares[i];
    return NULL;
}

uint64_t sim_share_make(struct sim_unit *unit, int slot, uint64_t bytes)
{
    sim_unit_lock(unit);
    struct sim_share *share = NULL;
    for (int i = 0; share == NULL && i < SIM_SHARES; i++)
        if (unit->shares[i].name == 0)
            share = &unit->shares[i];
    if (share != NULL) {
        *share = (struct sim_share){.name = ++unit->last_share, .bytes = bytes, .payer = slot};
        share->holds[slot] = 1;
    }
    uint64_t name = share == NULL ? 0 : share->name;
    sim_unit_unlock(unit);
    return name;
}

bool sim_share_join(struct sim_unit *unit, int slot, uint64_t name)
{
    sim_unit_lock(unit);
    struct sim_share *share = find(unit, name);
    if (share != NULL)
        share->holds[slot]++;
    sim_unit_unlock(unit);
    return share != NULL;
}

static int another_holder(const struct sim_share *share)
{
    for (int i = 0; i < SIM_SLOTS; i++)
        if (share->holds[i] > 0)
            return i;
    return SIM_NO_SLOT;
}

/* The payer has let go: the next one is charged before it is not, so that nobody finds room that is none. */
static void pass_on(struct sim_unit *unit, struct sim_share *share)
{
    int next = another_holder(share);
    if (next != SIM_NO_SLOT)
        atomic_fetch_add(&unit->slots[next].memory, share->bytes);
    atomic_fetch_sub(&unit->slots[share->payer].memory, share->bytes);
    share->payer = next;
    if (next == SIM_NO_SLOT)
        share->name = 0;
}

void sim_share_leave(struct sim_unit *unit, int slot, uint64_t name)
{
    sim_unit_lock(unit);
    struct sim_share *share = find(unit, name);
    if (share != NULL && --share->holds[slot] == 0 && share->payer == slot)
        pass_on(unit, share);
    sim_unit_unlock(unit);
}

void sim_share_forget(struct sim_unit *unit, int slot)
{
    for (int i = 0; i < SIM_SHARES; i++) {
        struct sim_share *share = &unit->shares[i];
        if (share->name == 0)
            continue;
        share->holds[slot] = 0;
        if (share->payer == slot)
            pass_on(unit, share);
    }
}
