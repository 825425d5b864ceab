"""Steps of the environment that a core makes in a second of its time, at a window that fills the path: python benches/steps.py"""

import time

import numpy
from fullpipe.env import PathEnv


def steps(rate, rtt, packets):
    """Steps and simulated packets a second of processor time: the best of five episodes."""
    scenario = {"duration": "60s", "path": {"rate": rate, "rtt": rtt, "buffer": "1bdp"}, "flow": [{"cc": "agent"}]}
    # The window's place between 2 and `most` packets.
    env = PathEnv(scenario, action="cwnd", max_window=packets)
    action = numpy.ones(1, numpy.float32)
    best = (0.0, 0.0)
    for seed in range(5):
        env.reset(seed=seed)
        made, over = 0, False
        began = time.process_time()
        while not over:
            _, _, terminated, truncated, _ = env.step(action)
            made, over = made + 1, terminated or truncated
        took = time.process_time() - began
        best = max(best, (made / took, sum(env.results().runs()["packets_sent"]) / took))
    return best


for rate, rtt, packets in (("10mbit", "40ms", 33), ("100mbit", "100ms", 833)):
    made, sent = steps(rate, rtt, packets)
    print(f"{rate} {rtt}, {packets} packets a step: {made:.0f} steps and {sent / 1e6:.2f} million packets a second")
