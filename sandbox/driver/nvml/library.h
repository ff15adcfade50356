/* NVML's view of the machine: the cards that may be seen, kept up to date with the scenario. */
#ifndef SIM_NVML_LIBRARY_H
#define SIM_NVML_LIBRARY_H

#include <stdbool.h>

#include "../include/simnvml.h"
#include "../machine/card.h"

/* What a handle points to: a card, or a MIG instance of one. */
struct nvmlDevice_st {
    int card, mig; /* mig: -1 for the whole card */
};

/* A device as looked up: valid until the scenario changes. */
struct sim_view {
    const struct sim_card *card;
    const struct sim_mig *mig; /* NULL: the whole card */
    struct sim_unit *unit;
    int card_index;
};

/* UNINITIALIZED until nvmlInit, LIB_RM_VERSION_MISMATCH once the driver is another than the one that this process began
 * with. Re-reads the scenario when it has changed. */
nvmlReturn_t sim_nvml_need(void);
/* The same, and returns no sooner than the card answers. */
nvmlReturn_t sim_nvml_reach(int card);
/* Also looks a handle up: INVALID_ARGUMENT for none, GPU_IS_LOST for a lost card. */
nvmlReturn_t sim_nvml_view(nvmlDevice_t handle, struct sim_view *view);
/* The same for what a whole card answers only. */
nvmlReturn_t sim_nvml_card(nvmlDevice_t handle, struct sim_view *view);

const struct sim_machine *sim_nvml_machine(void);
/* Cards that may be seen, as indexes into the scenario; returns how many. */
int sim_nvml_cards(int cards[SIM_MAX_CARDS]);
nvmlDevice_t sim_nvml_handle(int card, int mig);

#define SIM_NEED_VIEW(handle, view)                              \
    struct sim_view view;                                        \
    do {                                                         \
        nvmlReturn_t sim_result_ = sim_nvml_view(handle, &(view)); \
        if (sim_result_ != NVML_SUCCESS)                         \
            return sim_result_;                                  \
    } while (0)

#define SIM_NEED_CARD(handle, view)                              \
    struct sim_view view;                                        \
    do {                                                         \
        nvmlReturn_t sim_result_ = sim_nvml_card(handle, &(view)); \
        if (sim_result_ != NVML_SUCCESS)                         \
            return sim_result_;                                  \
    } while (0)

/* What NVML tells of a device at this place of the bus. */
void sim_nvml_pci(const char *bus, nvmlPciInfo_t *info);
/* Copies a text into the caller's buffer, INSUFFICIENT_SIZE when it does not fit. */
nvmlReturn_t sim_nvml_text(char *out, unsigned int length, const char *text);

#endif
