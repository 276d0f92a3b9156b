// Sends two requests with an SDK of npm: client.cjs SDK HOST:PORT KEY, in the folder with node_modules. With a fourth
// argument, the second one is sent again after the wait that its error has. Prints the version of the SDK, and what
// the program gets.
const fs = require('node:fs')
const path = require('node:path')
const require_ = require('node:module').createRequire(path.join(process.cwd(), 'x.js'))

const [sdk, address, key, again] = process.argv.slice(2)
const headers = { 'x-api-key': key }
const messages = [{ role: 'user', content: 'hello' }]

const sdks = {
  openai() {
    const OpenAI = require_('openai')
    const client = new OpenAI({ apiKey: 'none', baseURL: `http://${address}/v1`, defaultHeaders: headers })
    return () => client.chat.completions.create({ model: 'm', messages })
  },
  '@anthropic-ai/sdk'() {
    const Anthropic = require_('@anthropic-ai/sdk')
    const client = new Anthropic({ apiKey: 'none', baseURL: `http://${address}`, defaultHeaders: headers })
    return () => client.messages.create({ model: 'm', max_tokens: 1, messages })
  },
  async '@modelcontextprotocol/sdk'() {
    const { Client } = require_('@modelcontextprotocol/sdk/client/index.js')
    const { StreamableHTTPClientTransport } = require_('@modelcontextprotocol/sdk/client/streamableHttp.js')
    const client = new Client({ name: 'test', version: '1' })
    await client.connect(new StreamableHTTPClientTransport(new URL(`http://${address}/mcp`), { requestInit: { headers } }))
    return () => client.callTool({ name: 'search', arguments: {} })
  },
}

function told(error) {
  const code = error.code ?? error.error?.error?.type
  const data = error.data?.rule ? ', data' : ''
  return `${error.constructor.name}, ${code}${data}: ${error.message}`
}

// wait returns the milliseconds that a program finds in an error.
function wait(error) {
  return error.data?.retryAfterMs ?? 1000 * error.headers.get('retry-after')
}

async function main() {
  const request = await sdks[sdk]()
  const answers = []
  for (let i = 0; i < (again ? 3 : 2); i++) {
    try {
      await request()
      answers.push('')
    } catch (error) {
      answers.push(told(error))
      if (again) await new Promise(done => setTimeout(done, wait(error)))
    }
  }
  const { version } = JSON.parse(fs.readFileSync(path.join('node_modules', sdk, 'package.json'), 'utf8'))
  console.log(JSON.stringify({ version, answers }))
  process.exit(0)
}

main()
