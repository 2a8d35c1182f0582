from tern_testing import DeadLetter as DeadLetter
from tern_testing import MeshFailed as MeshFailed
from tern_testing import SentMessage as SentMessage
from tern_testing import TestMesh as TestMesh
