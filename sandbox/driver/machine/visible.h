/* Which cards a process sees: nodes in $SIMGPU_DEV, then CUDA_VISIBLE_DEVICES. */
#ifndef SIM_VISIBLE_H
#define SIM_VISIBLE_H

#include "scenario.h"

enum { SIM_MAX_DEVICES = SIM_MAX_CARDS * SIM_MAX_MIG };

/* A card, or one MIG instance of it (mig >= 0). */
struct sim_choice {
    int card, mig;
};

/* Is the device node of a card (of a MIG instance: also of its capabilities) there? Always true when SIMGPU_DEV is unset. */
bool sim_card_present(const struct sim_card *card);
bool sim_mig_present(const struct sim_card *card, const struct sim_mig *mig);

/* Fills the list as CUDA orders it; returns its length. */
int sim_visible(const struct sim_scenario *scenario, struct sim_choice choices[SIM_MAX_DEVICES]);

#endif
