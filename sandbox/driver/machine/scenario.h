/* The scenario: what machine is simulated, read from $SIMGPU_DIR/scenario (lines of `key = value`). */
#ifndef SIM_SCENARIO_H
#define SIM_SCENARIO_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SIM_MAX_CARDS = 16,
    SIM_MAX_MIG = 7,
    SIM_MAX_XIDS = 32,
    SIM_MAX_NVLINKS = 36,
    SIM_NVSWITCH = SIM_MAX_CARDS, /* in the place of a card: the other end of a link is a switch */
    SIM_PATH = 256,
    SIM_NAME = 96,
};

#define SIM_MIB (1024ULL * 1024ULL)

/* One MIG instance of a card. */
struct sim_mig {
    char profile[SIM_NAME]; /* "1g.18gb" */
    char uuid[SIM_NAME];    /* "MIG-…" */
    uint64_t memory;        /* bytes */
    int gi, ci;             /* ids of the GPU instance and of the compute instance */
    int gi_minor, ci_minor; /* minor numbers of nvidia-caps */
    int slices;             /* compute slices: the 1 of 1g.18gb */
};

/* One card. */
struct sim_card {
    char model[SIM_NAME];
    char uuid[SIM_NAME];   /* "GPU-…" */
    char bus_id[SIM_NAME]; /* "00000000:18:00.0" */
    uint64_t memory;       /* bytes, the reserve included */
    uint64_t reserved;     /* bytes that the driver keeps for itself */
    uint64_t context;      /* bytes that every context costs */
    uint64_t green;        /* bytes that a green context costs */
    uint64_t module;       /* bytes that a module costs in every context that it is loaded in */
    uint64_t copy_speed;   /* bytes a microsecond over the bus, in each direction; 0: copies take no time */
    uint64_t memory_speed; /* the same of the card's memory */
    uint64_t switch_ns;    /* what it takes to hand the card from one process to another */
    int minor;
    int numa_node; /* -1: none */
    char pcie_path[SIM_PATH]; /* what is above it: "pci0000:15/0000:16:00.0", its root complex and switches */
    int nvlinks[SIM_MAX_NVLINKS]; /* the card at the other end of each */
    int nvlink_count;
    int nvlinks_down; /* of them, from the first on */
    int temperature;
    bool concurrent; /* contexts run side by side, as under MPS, instead of in turns */
    bool lost;       /* fell off the bus */
    bool stuck;      /* calls about it do not return while it is */
    int ecc_errors;  /* uncorrected ones, so far */
    bool mig_enabled;
    int xids[SIM_MAX_XIDS]; /* all XIDs so far, in order */
    int xid_count;
    struct sim_mig mig[SIM_MAX_MIG];
    int mig_count;
};

struct sim_scenario {
    char driver_version[SIM_NAME];
    int cuda_version; /* 13050 is 13.5 */
    struct sim_card cards[SIM_MAX_CARDS];
    int card_count;
};

/* Reads the file; false (and one line on stderr) when it is missing or does not describe a machine. */
bool sim_scenario_read(const char *path, struct sim_scenario *out);

#endif
