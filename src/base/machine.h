// Memory of this machine or of the cgroup that this process is in, whichever is smaller.
#pragma once

#include "base/units.h"

namespace masu {

struct MachineMemory {
  Bytes total;      // what there is: physical memory or the cgroup's limit
  Bytes available;  // what could be allocated now without pushing others out
};

MachineMemory ReadMachineMemory();
// Makes the C library give memory back to the system soon, and keep few heaps: what a server's
// threads have freed would otherwise stay resident (80 MiB and more after large requests). Before
// threads are started.
void LimitHeapSlack();
// Resident anonymous and shared memory of this process (RssAnon + RssShmem).
Bytes ResidentMemory();

}  // namespace masu
