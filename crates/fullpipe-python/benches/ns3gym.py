"""Steps of ns3-gym's own TCP environment on a path that `benches/steps.py` has: python benches/ns3gym.py PROGRAM NS3GYM [100]

PROGRAM is `examples/rl-tcp` of github.com/tkn-tub/ns3-gym, built against ns-3 (Debian: libns3-dev, libzmq3-dev, cppzmq-dev, libprotobuf-dev,
protobuf-compiler); NS3GYM the folder `model/ns3gym` of the same, with pyzmq, protobuf and gym (or gymnasium under that name) installed. Time-based
steps of a round trip, and a window that fills the path as the bench beside it has one. With 100 the path is of 100 Mbit/s and 100 ms.
"""

import os
import resource
import subprocess
import sys
import time


def bench(program, rate, rtt_ms, packets, seconds, port):
    from ns3gym import ns3env

    paths = {
        "--bottleneck_bandwidth": f"{rate}Mbps",
        "--bottleneck_delay": f"{rtt_ms / 2 - 0.02:.3f}ms",
        "--access_bandwidth": "1Gbps",
        "--access_delay": "0.01ms",
    }
    words = {"--transport_prot": "TcpRlTimeBased", "--envTimeStep": rtt_ms / 1000, "--mtu": 1500, "--duration": seconds, **paths}
    given = [f"{key}={value}" for key, value in {"--openGymPort": port, "--simSeed": 1, **words}.items()]
    child = subprocess.Popen([program, *given], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    env = ns3env.Ns3Env(port=port, stepTime=rtt_ms / 1000, startSim=False, simSeed=1, simArgs={}, debug=False)
    env.reset()
    # Threshold and window in bytes of 1440 a packet; acknowledged segments are the tenth value seen.
    action, made, acked, over = [packets * 1440] * 2, 0, 0, False
    began, used = time.perf_counter(), time.process_time()
    while not over:
        seen, _, over, _ = env.step(action)[:4]
        made, acked = made + 1, acked + int(seen[9]) if seen is not None and len(seen) > 9 else acked
    took, used = time.perf_counter() - began, time.process_time() - used
    child.wait(timeout=60)
    theirs = resource.getrusage(resource.RUSAGE_CHILDREN)
    used += theirs.ru_utime + theirs.ru_stime
    print(
        f"ns3-gym, {rate} Mbit/s, {rtt_ms} ms: {made} steps of {acked / made:.1f} packets, {made / took:.0f} a second of the clock, "
        f"{made / used:.0f} a second of processor time",
        flush=True,
    )
    os._exit(0)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[2])
    if sys.argv[3:] == ["100"]:
        bench(sys.argv[1], 100, 100, 833, 20, 5612)
    else:
        bench(sys.argv[1], 10, 40, 33, 60, 5611)
