"""Systems made of parts: a system is a `Path` of sample, caches, rows and copy, on the
base `PathSystem`.

Read `path.py` first, then one interface a kind of part: `topology`, `sample`, `cache`,
`rows`, `copy`. Each kind has its implementations in `kinds`, a file each; `sizes`
divides the memory among all.
"""

from systems.parts.cache import Cache as Cache
from systems.parts.copy import Copy as Copy
from systems.parts.copy import Load as Load
from systems.parts.kinds.demand import Demand as Demand
from systems.parts.kinds.direct_rows import DirectRows as DirectRows
from systems.parts.kinds.direct_rows import SingleRows as SingleRows
from systems.parts.kinds.first_layer import FirstLayer as FirstLayer
from systems.parts.kinds.first_layer import first_layer_oracle as first_layer_oracle
from systems.parts.kinds.graphs import Loaded as Loaded
from systems.parts.kinds.graphs import Mapped as Mapped
from systems.parts.kinds.graphs import NeighbourLists as NeighbourLists
from systems.parts.kinds.graphs import host_graph as host_graph
from systems.parts.kinds.host_rows import HostRows as HostRows
from systems.parts.kinds.mapped_rows import MappedRows as MappedRows
from systems.parts.kinds.neighbours import Neighbours as Neighbours
from systems.parts.kinds.paged_rows import PagedRows as PagedRows
from systems.parts.kinds.ranked import Ranked as Ranked
from systems.parts.kinds.ring import Ring as Ring
from systems.parts.kinds.static_device import StaticDevice as StaticDevice
from systems.parts.kinds.static_host import StaticHost as StaticHost
from systems.parts.kinds.tables import Tables as Tables
from systems.parts.kinds.zero_copy import ZeroCopy as ZeroCopy
from systems.parts.options import SamplingOptions as SamplingOptions
from systems.parts.part import Part as Part
from systems.parts.part import Site as Site
from systems.parts.path import Path as Path
from systems.parts.rows import Rows as Rows
from systems.parts.sample import Sample as Sample
from systems.parts.sizes import Follower as Follower
from systems.parts.sizes import Need as Need
from systems.parts.source import Source as Source
from systems.parts.system import PathSystem as PathSystem
from systems.parts.tier import ChangingCache as ChangingCache
from systems.parts.topology import Graph as Graph
from systems.parts.topology import Topology as Topology
