/* Where work runs, and how long it takes there. */
#ifndef SIM_COST_H
#define SIM_COST_H

#include "device.h"

struct sim_op;

enum sim_place {
    SIM_PLACE_NONE, /* takes no time of the card's */
    SIM_PLACE_CARD, /* in the process's turns */
    SIM_PLACE_BUS_IN, SIM_PLACE_BUS_OUT, /* on an engine that copies beside them */
};

struct sim_cost {
    enum sim_place place;
    uint32_t need; /* on the card: threads */
    uint64_t ns;
};

/* What a kernel, a copy or a fill costs on a device. */
struct sim_cost sim_cost_of(const struct sim_op *op, const struct sim_device *device);
/* How long bytes take over a device's bus. */
uint64_t sim_bus_ns(const struct sim_device *device, uint64_t bytes);

#endif
