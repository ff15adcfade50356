/*
 * What work costs. Copies and fills within a card's memory take all of it at the bandwidth of the memory, of which a copy uses twice
 * its bytes; other copies take an engine at the bandwidth of the bus. They last whole microseconds: small ones cost nothing.
 */
#include "cost.h"

#include "../machine/plan.h"
#include "engine.h"
#include "host.h"

/* The device that has the memory at an address; NULL: the host. */
static const struct sim_device *owner_of(const void *address)
{
    struct sim_allocation found;
    if (!sim_memory_find((uintptr_t)address, &found) || found.kind == SIM_MEMORY_HOST || found.kind == SIM_MEMORY_REGISTERED)
        return NULL;
    return found.device;
}

static uint64_t duration(uint64_t bytes, uint64_t bytes_per_us)
{
    return bytes_per_us == 0 ? 0 : bytes / bytes_per_us * 1000;
}

static struct sim_cost on_card(const struct sim_device *device, uint64_t bytes)
{
    uint64_t ns = duration(bytes, device->card->memory_speed);
    return (struct sim_cost){ns == 0 ? SIM_PLACE_NONE : SIM_PLACE_CARD, SIM_RESIDENT, ns};
}

uint64_t sim_bus_ns(const struct sim_device *device, uint64_t bytes)
{
    return duration(bytes, device->card->copy_speed);
}

static struct sim_cost on_bus(const struct sim_device *device, enum sim_place direction, uint64_t bytes)
{
    uint64_t ns = sim_bus_ns(device, bytes);
    return (struct sim_cost){ns == 0 ? SIM_PLACE_NONE : direction, 0, ns};
}

static struct sim_cost of_copy(const struct sim_copy *copy, const struct sim_device *device)
{
    uint64_t bytes = (uint64_t)copy->width * copy->height * copy->depth;
    const struct sim_device *from = owner_of(copy->source), *to = owner_of(copy->target);
    if (from == NULL && to == NULL)
        return (struct sim_cost){0};
    if (from == to)
        return on_card(device, 2 * bytes);
    return on_bus(device, to == device ? SIM_PLACE_BUS_IN : SIM_PLACE_BUS_OUT, bytes);
}

struct sim_cost sim_cost_of(const struct sim_op *op, const struct sim_device *device)
{
    switch (op->kind) {
    case SIM_OP_KERNEL:
        return (struct sim_cost){SIM_PLACE_CARD, sim_plan_need(op->launch.grid, op->launch.block), op->launch.ns};
    case SIM_OP_COPY:
        return of_copy(&op->copy, device);
    case SIM_OP_SET:
        return on_card(device, (uint64_t)op->set.width * op->set.element * op->set.height);
    default:
        return (struct sim_cost){0};
    }
}
