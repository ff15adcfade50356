/* The words through which kernels meet: in this process, in another, on any card. */
#include "meeting.h"

void sim_meeting_arrive(const struct sim_meeting *meeting)
{
    atomic_store_explicit((_Atomic uint32_t *)meeting->arrive, meeting->value, memory_order_release);
}

bool sim_meeting_holds(const struct sim_meeting *meeting)
{
    uint32_t seen = atomic_load_explicit((_Atomic uint32_t *)meeting->await, memory_order_acquire);
    return (int32_t)(seen - meeting->value) >= 0;
}
