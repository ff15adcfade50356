/* Fills the record of a simulated machine's first card with runs of a nanosecond, as many as its ring holds: full_record DIRECTORY PID. */
#include <stdlib.h>

#include "machine/card.h"

int main(int count, char **args)
{
    struct sim_machine machine;
    if (count != 3 || !sim_machine_open(&machine, args[1]))
        return 2;
    struct sim_unit *unit = &machine.state->units[sim_unit_of_card(0)];
    int pid = atoi(args[2]);
    sim_unit_lock(unit);
    uint64_t start = sim_now() - 2 * SIM_RECORDS;
    for (uint64_t i = 0; i < SIM_RECORDS; i++)
        sim_record_add(&unit->log, (struct sim_record){pid, SIM_RAN, start + 2 * i, start + 2 * i + 1});
    sim_unit_unlock(unit);
    return 0;
}
